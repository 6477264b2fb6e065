# spillway::cuda_headers: cuda.h and friends, from the headers that the torch wheels bring, which fit torch, or else from an
# installed CUDA 13 toolkit. libcuda and libcudart are never linked.
if(NOT SPILLWAY_CUDA_INCLUDE)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c
      "import sysconfig, pathlib; print(pathlib.Path(sysconfig.get_paths()['purelib'])/'nvidia/cu13/include')"
    OUTPUT_VARIABLE SPILLWAY_WHEEL_CUDA OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  find_path(SPILLWAY_CUDA_INCLUDE cudaTypedefs.h
    HINTS ${SPILLWAY_WHEEL_CUDA} $ENV{CUDA_HOME}/include /usr/local/cuda/include)
endif()
if(NOT SPILLWAY_CUDA_INCLUDE)
  message(FATAL_ERROR "No CUDA 13 headers: run scripts/bootstrap, or set SPILLWAY_CUDA_INCLUDE to a folder with cuda.h")
endif()
message(STATUS "CUDA headers: ${SPILLWAY_CUDA_INCLUDE}")
add_library(spillway_cuda_headers INTERFACE)
add_library(spillway::cuda_headers ALIAS spillway_cuda_headers)
target_include_directories(spillway_cuda_headers SYSTEM INTERFACE ${SPILLWAY_CUDA_INCLUDE})
# Some of torch's wheels lack crt/host_defines.h, which cuda_runtime_api.h includes; triton's has it, as a toolkit does.
if(SPILLWAY_CUDA_INCLUDE)
  cmake_path(SET SPILLWAY_WHEELS NORMALIZE "${SPILLWAY_WHEEL_CUDA}/../../..")
  find_path(SPILLWAY_CUDA_CRT crt/host_defines.h HINTS ${SPILLWAY_CUDA_INCLUDE}
    PATHS $ENV{CUDA_HOME}/include /usr/local/cuda/include ${SPILLWAY_WHEELS}/triton/backends/nvidia/include)
  if(SPILLWAY_CUDA_CRT)
    target_include_directories(spillway_cuda_headers SYSTEM INTERFACE ${SPILLWAY_CUDA_CRT})
  endif()
endif()

