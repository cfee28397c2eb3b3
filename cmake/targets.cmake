# One folder is one target, named after the folder's path: common/actor -> common_actor.
#
#   rag_library(SRCS a.cc HDRS a.h DEPS common_actor PRIVATE_DEPS torch_cpu [NAME other] [TORCH])
#   rag_binary(NAME ragcache SRCS main.cc DEPS ...)
#   rag_test(SRCS a_test.cc DEPS ... [NAME x] [LABEL unit|sim|integration|e2e] [TIMEOUT s] [TORCH])
#   rag_bench(SRCS a_bench.cc DEPS ... [NAME x] [TORCH])
#   rag_proto(SRCS ragcache/types/v1/types.proto ...)
#
# TORCH makes a target's units share one precompiled ATen header (a Torch unit costs ~25 s
# without it). Only kernels/, services/worker/ and services/retrieval/embed/ may ask for it.

set(RAG_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them")

add_library(rag_flags INTERFACE)
target_include_directories(rag_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(rag_flags INTERFACE -Wall -Wextra -Werror -Wno-missing-field-initializers
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized -Wno-dangling-pointer>)
target_compile_definitions(rag_flags INTERFACE BOOST_ASIO_NO_DEPRECATED
                           BOOST_ASIO_DISABLE_BOOST_COROUTINE)
if(RAG_SANITIZE)
  target_compile_options(rag_flags INTERFACE -fsanitize=${RAG_SANITIZE})
  target_link_options(rag_flags INTERFACE -fsanitize=${RAG_SANITIZE})
  if(RAG_SANITIZE MATCHES thread)
    # Asio's fences, of which GCC warns that they are not followed, stand beside locks that are.
    target_compile_options(rag_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
  endif()
endif()

function(rag_folder_target OUT)
  file(RELATIVE_PATH path ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  string(REPLACE "/" "_" name ${path})
  set(${OUT} ${name} PARENT_SCOPE)
endfunction()

function(rag_use_torch TARGET)
  if(NOT TARGET torch_pch)
    file(WRITE ${CMAKE_BINARY_DIR}/torch_pch.cc "")
    add_library(torch_pch OBJECT ${CMAKE_BINARY_DIR}/torch_pch.cc)
    target_link_libraries(torch_pch PRIVATE rag_flags torch_cpu)
    target_precompile_headers(torch_pch PRIVATE <ATen/ATen.h>)
    target_compile_options(torch_pch PRIVATE -fpch-preprocess)
  endif()
  target_link_libraries(${TARGET} PRIVATE torch_cpu)
  target_precompile_headers(${TARGET} REUSE_FROM torch_pch)
  # An executable would compile as -fPIE, which the header compiled as -fPIC does not serve.
  target_compile_options(${TARGET} PRIVATE -fpch-preprocess -fPIC)
endfunction()

function(rag_library)
  cmake_parse_arguments(A "TORCH" "NAME" "SRCS;HDRS;DEPS;PRIVATE_DEPS" ${ARGN})
  rag_folder_target(name)
  if(A_NAME)
    set(name ${A_NAME})
  endif()
  if(A_SRCS)
    add_library(${name} STATIC ${A_SRCS} ${A_HDRS})
    target_link_libraries(${name} PUBLIC rag_flags ${A_DEPS} PRIVATE ${A_PRIVATE_DEPS})
    if(A_TORCH)
      rag_use_torch(${name})
    endif()
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE rag_flags ${A_DEPS})
  endif()
endfunction()

function(rag_binary)
  cmake_parse_arguments(A "" "NAME" "SRCS;DEPS" ${ARGN})
  add_executable(${A_NAME} ${A_SRCS})
  target_link_libraries(${A_NAME} PRIVATE rag_flags ${A_DEPS})
endfunction()

function(rag_test)
  cmake_parse_arguments(A "TORCH" "NAME;LABEL;TIMEOUT" "SRCS;DEPS" ${ARGN})
  rag_folder_target(name)
  if(A_NAME)
    set(name ${A_NAME})
  endif()
  if(NOT A_LABEL)
    set(A_LABEL unit)
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 120)
  endif()
  add_executable(${name}_test ${A_SRCS})
  target_link_libraries(${name}_test PRIVATE rag_flags ${A_DEPS} GTest::gmock GTest::gtest_main)
  set_target_properties(${name}_test PROPERTIES
                        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(A_TORCH)
    rag_use_torch(${name}_test)
  endif()
  add_test(NAME ${name} COMMAND ${name}_test)
  set_tests_properties(${name} PROPERTIES LABELS ${A_LABEL} TIMEOUT ${A_TIMEOUT}
    ENVIRONMENT "RAG_SOURCE_DIR=${CMAKE_SOURCE_DIR};RAG_DEPS_DIR=${RAG_DEPS_DIR};RAG_BIN_DIR=${CMAKE_BINARY_DIR}/bin")
  # Such tests measure time or start whole servers: beside others they would starve.
  if(A_LABEL MATCHES "integration|e2e")
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()

function(rag_bench)
  cmake_parse_arguments(A "TORCH" "NAME" "SRCS;DEPS" ${ARGN})
  rag_folder_target(name)
  if(A_NAME)
    set(name ${A_NAME})
  endif()
  add_executable(${name}_bench ${A_SRCS})
  target_link_libraries(${name}_bench PRIVATE rag_flags ${A_DEPS} benchmark::benchmark)
  if(A_TORCH)
    rag_use_torch(${name}_bench)
  endif()
endfunction()

function(rag_proto)
  cmake_parse_arguments(A "" "" "SRCS" ${ARGN})
  set(out ${CMAKE_BINARY_DIR}/proto)
  file(MAKE_DIRECTORY ${out})
  set(generated)
  foreach(src ${A_SRCS})
    string(REGEX REPLACE "\\.proto$" "" stem ${src})
    set(outputs ${out}/${stem}.pb.cc ${out}/${stem}.pb.h ${out}/${stem}.grpc.pb.cc
                ${out}/${stem}.grpc.pb.h)
    add_custom_command(
      OUTPUT ${outputs}
      COMMAND protobuf::protoc -I ${CMAKE_CURRENT_SOURCE_DIR} --cpp_out=${out} --grpc_out=${out}
              --plugin=protoc-gen-grpc=${RAG_GRPC_CPP_PLUGIN} ${src}
      WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
      DEPENDS ${A_SRCS}
      VERBATIM)
    list(APPEND generated ${outputs})
  endforeach()
  add_library(proto STATIC ${generated})
  # Generated code is not ours to warn about.
  target_compile_options(proto PRIVATE -w)
  target_include_directories(proto SYSTEM PUBLIC ${out})
  target_link_libraries(proto PUBLIC rag_flags protobuf::libprotobuf PkgConfig::GRPCPP)
endfunction()
