# Writes a source that says how the program was built: cmake -D SOURCE=folder -D TEMPLATE=file
# -D OUT=file -D BUILD=text -D COMPILER=text -P build_info.cmake. Run by every build; the file is
# touched only when it says something else, so that nothing is compiled for it otherwise.
set(commit unknown)
set(dirty false)
find_package(Git QUIET)
if(GIT_FOUND)
  # Locks nothing: somebody may be using the tree.
  set(git ${GIT_EXECUTABLE} --no-optional-locks -C ${SOURCE})
  execute_process(COMMAND ${git} rev-parse HEAD RESULT_VARIABLE failed OUTPUT_VARIABLE head
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT failed)
    set(commit ${head})
    execute_process(COMMAND ${git} status --porcelain --untracked-files=no
                    OUTPUT_VARIABLE changes ERROR_QUIET)
    if(changes)
      set(dirty true)
    endif()
  endif()
endif()
configure_file(${TEMPLATE} ${OUT} @ONLY)
