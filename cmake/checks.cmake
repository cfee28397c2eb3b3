# Rules of the folder structure that the compiler cannot see; `ctest` runs them as one test.
add_test(NAME layering COMMAND ${CMAKE_SOURCE_DIR}/tests/layering.sh
         WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
set_tests_properties(layering PROPERTIES LABELS unit)
