# Every third-party library becomes one target here; no other file names a library's path.
# Debian packages come from deploy/setup.sh, which also unpacks libtorch into .deps/.

set(RAG_DEPS_DIR ${CMAKE_SOURCE_DIR}/.deps CACHE PATH "Folder that deploy/setup.sh filled")

find_program(RAG_CCACHE ccache)
if(RAG_CCACHE)
  # The sloppiness lets ccache serve units that use the precompiled Torch header.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${RAG_CCACHE})
endif()

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(absl REQUIRED)
find_package(Protobuf REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(ICU REQUIRED COMPONENTS uc i18n)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(prometheus-cpp REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)
find_package(Boost 1.81 REQUIRED)
pkg_check_modules(CAIRO REQUIRED IMPORTED_TARGET cairo)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(GRPCPP REQUIRED IMPORTED_TARGET grpc++)
find_library(RAG_GRPC_REFLECTION_LIBRARY grpc++_reflection REQUIRED)
find_program(RAG_GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)

# libtorch as one imported target: find_package(Torch) would drag CUDA in. A CPU program needs
# torch_cpu and c10 alone, which in turn want the CUDA runtime's two small libraries at load time.
set(RAG_TORCH_DIR ${RAG_DEPS_DIR}/torch)
if(NOT EXISTS ${RAG_TORCH_DIR}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "libtorch is not in ${RAG_TORCH_DIR}: run deploy/setup.sh first")
endif()
set(RAG_TORCH_RPATH ${RAG_TORCH_DIR}/lib ${RAG_DEPS_DIR}/cuda/lib)
add_library(torch_cpu INTERFACE IMPORTED)
target_include_directories(torch_cpu SYSTEM INTERFACE
  ${RAG_TORCH_DIR}/include ${RAG_TORCH_DIR}/include/torch/csrc/api/include)
target_link_libraries(torch_cpu INTERFACE
  ${RAG_TORCH_DIR}/lib/libtorch_cpu.so ${RAG_TORCH_DIR}/lib/libc10.so)
# DT_RPATH rather than DT_RUNPATH: only the former also serves what libtorch itself needs.
target_link_options(torch_cpu INTERFACE -Wl,--disable-new-dtags
  -Wl,-rpath,${RAG_TORCH_DIR}/lib -Wl,-rpath,${RAG_DEPS_DIR}/cuda/lib
  -Wl,-rpath-link,${RAG_TORCH_DIR}/lib -Wl,-rpath-link,${RAG_DEPS_DIR}/cuda/lib)

find_library(RAG_FAISS_LIBRARY faiss REQUIRED)
find_library(RAG_BLAS_LIBRARY NAMES libopenblas.so.0 libblas.so.3 REQUIRED
             PATH_SUFFIXES openblas-openmp)
find_package(OpenMP REQUIRED)
add_library(faiss_static INTERFACE IMPORTED)
target_link_libraries(faiss_static INTERFACE ${RAG_FAISS_LIBRARY} ${RAG_BLAS_LIBRARY}
                      OpenMP::OpenMP_CXX)
