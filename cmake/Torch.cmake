# spillway::torch (c10, torch, CUDA parts) and spillway::torch_python, from the torch that the chosen Python imports.
# find_package(Torch) is avoided: on a CUDA build it asks for a whole CUDA toolkit, which nothing here needs.
execute_process(
  COMMAND ${Python_EXECUTABLE} -c
    "import importlib.metadata as m, importlib.util as u, os; print(m.version('torch').split('+')[0]); print(os.path.dirname(u.find_spec('torch').origin))"
  OUTPUT_VARIABLE SPILLWAY_TORCH_FOUND OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE SPILLWAY_TORCH_MISSING
  ERROR_QUIET)
if(SPILLWAY_TORCH_MISSING AND SKBUILD)
  message(FATAL_ERROR "There is no torch here to build against. Spillway is built for the torch that it will run with, which an "
    "isolated build does not see: install that torch, then pip install --no-build-isolation .")
elseif(SPILLWAY_TORCH_MISSING)
  message(FATAL_ERROR "${Python_EXECUTABLE} has no torch: run scripts/bootstrap, or configure with -DSPILLWAY_TORCH=OFF")
endif()
string(REPLACE "\n" ";" SPILLWAY_TORCH_FOUND "${SPILLWAY_TORCH_FOUND}")
list(GET SPILLWAY_TORCH_FOUND 0 SPILLWAY_TORCH_VERSION)
list(GET SPILLWAY_TORCH_FOUND 1 SPILLWAY_TORCH_ROOT)

# The range stands in the package, which names it at import.
set(versions ${PROJECT_SOURCE_DIR}/python/spillway/_torch_versions.py)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${versions})
file(STRINGS ${versions} ends REGEX "^(OLDEST|NEWEST) = ")
list(TRANSFORM ends REPLACE "^.*\"(.*)\"$" "\\1")
list(GET ends 0 oldest)
list(GET ends 1 newest)
set(SPILLWAY_TORCH_SUPPORTED "torch ${oldest} to ${newest}")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" found ${SPILLWAY_TORCH_VERSION})
if(found VERSION_LESS oldest OR found VERSION_GREATER newest)
  message(FATAL_ERROR "torch ${SPILLWAY_TORCH_VERSION} found at ${SPILLWAY_TORCH_ROOT}, but Spillway supports ${SPILLWAY_TORCH_SUPPORTED}: "
    "install one of these, or run scripts/bootstrap")
endif()
message(STATUS "torch ${SPILLWAY_TORCH_VERSION}: ${SPILLWAY_TORCH_ROOT}")

add_library(spillway_torch INTERFACE)
add_library(spillway::torch ALIAS spillway_torch)
target_include_directories(spillway_torch SYSTEM INTERFACE
  ${SPILLWAY_TORCH_ROOT}/include ${SPILLWAY_TORCH_ROOT}/include/torch/csrc/api/include)
target_link_directories(spillway_torch INTERFACE ${SPILLWAY_TORCH_ROOT}/lib)
target_link_libraries(spillway_torch INTERFACE spillway::cuda_headers c10 c10_cuda torch_cpu torch_cuda)

add_library(spillway_torch_python INTERFACE)
add_library(spillway::torch_python ALIAS spillway_torch_python)
target_link_libraries(spillway_torch_python INTERFACE spillway::torch torch_python Python::Module)
