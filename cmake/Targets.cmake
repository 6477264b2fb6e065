# Small functions that keep all targets alike.
include(CMakeParseArguments)
set(SPILLWAY_PYTHON_DIR ${CMAKE_BINARY_DIR}/python)         # an importable tree: package, libraries, entry points
set(SPILLWAY_LIB_DIR ${SPILLWAY_PYTHON_DIR}/spillway/lib)   # every shared library that a user loads

# spillway_library(NAME heap SRCS heap.cpp DEPS driver): the static library spillway::heap of one folder.
function(spillway_library)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS" ${ARGN})
  add_library(spillway_${ARG_NAME} STATIC ${ARG_SRCS})
  add_library(spillway::${ARG_NAME} ALIAS spillway_${ARG_NAME})
  target_include_directories(spillway_${ARG_NAME} PUBLIC ${PROJECT_SOURCE_DIR})
  list(TRANSFORM ARG_DEPS PREPEND spillway::)
  target_link_libraries(spillway_${ARG_NAME} PUBLIC ${ARG_DEPS} PRIVATE spillway::warnings)
endfunction()

# spillway_module(NAME spillway_emulator SRCS … DEPS … EXPORTS file.map): a shared library that binds to itself and
# exports only what the version script lists (the `exports` tests compare). NAMES is a list in the same form, for a library
# whose version script cannot name all.
function(spillway_module)
  cmake_parse_arguments(ARG "" "NAME;EXPORTS;NAMES" "SRCS;DEPS" ${ARGN})
  add_library(${ARG_NAME} SHARED ${ARG_SRCS})
  target_include_directories(${ARG_NAME} PRIVATE ${PROJECT_SOURCE_DIR})
  list(TRANSFORM ARG_DEPS PREPEND spillway::)
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} spillway::warnings ${CMAKE_DL_LIBS} Threads::Threads)
  cmake_path(ABSOLUTE_PATH ARG_EXPORTS BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE map)
  target_link_options(${ARG_NAME} PRIVATE -Wl,-Bsymbolic -Wl,--version-script=${map} -Wl,-z,defs)
  if(SPILLWAY_SANITIZE)
    target_link_options(${ARG_NAME} PRIVATE -Wl,-z,undefs)  # the sanitizer's runtime is in the executable
  endif()
  set_target_properties(${ARG_NAME} PROPERTIES
    LINK_DEPENDS ${map} LIBRARY_OUTPUT_DIRECTORY ${SPILLWAY_LIB_DIR} BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")
  if(NOT ARG_NAMES)
    set(ARG_NAMES ${map})
  endif()
  set_property(GLOBAL APPEND PROPERTY SPILLWAY_MODULES "$<TARGET_FILE:${ARG_NAME}>=${ARG_NAMES}")
  set_property(GLOBAL APPEND PROPERTY SPILLWAY_MODULE_TARGETS ${ARG_NAME})
  install(TARGETS ${ARG_NAME} LIBRARY DESTINATION spillway/lib)
endfunction()

# spillway_test(NAME heap_test SRCS … DEPS … LABELS unit [EMULATED]): one GoogleTest program; a run of it is one ctest case.
# EMULATED links the emulated GPU and runs on it. FILTER chooses some of its cases, PREFIX keeps the names of several runs
# apart. A run that takes more than TIMEOUT seconds (1800) fails.
function(spillway_test)
  cmake_parse_arguments(ARG "EMULATED" "NAME;PREFIX;FILTER;TIMEOUT" "SRCS;DEPS;LABELS;ENVIRONMENT" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_include_directories(${ARG_NAME} PRIVATE ${PROJECT_SOURCE_DIR})
  list(TRANSFORM ARG_DEPS PREPEND spillway::)
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} spillway::warnings GTest::gtest GTest::gtest_main)
  # Of what they test the speed matters, of themselves that of building: under sanitizers, 2.5 times as long if optimized.
  target_compile_options(${ARG_NAME} PRIVATE -O0)
  if(ARG_EMULATED)
    target_link_libraries(${ARG_NAME} PRIVATE -Wl,--no-as-needed spillway_emulator -Wl,--as-needed)
    list(APPEND ARG_ENVIRONMENT SPILLWAY_EMULATE=1)
  endif()
  spillway_run(NAME ${ARG_NAME} PREFIX "${ARG_PREFIX}" FILTER "${ARG_FILTER}" TIMEOUT "${ARG_TIMEOUT}"
    LABELS ${ARG_LABELS} ENVIRONMENT ${ARG_ENVIRONMENT})
endfunction()

# spillway_run(NAME heap_test PREFIX late. [FILTER Late.*] LABELS unit [ENVIRONMENT …]): one more run of a GoogleTest program,
# in another environment. One process runs all cases, because its start takes longer than most of them.
function(spillway_run)
  cmake_parse_arguments(ARG "" "NAME;PREFIX;FILTER;TIMEOUT" "LABELS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 1800)
  endif()
  if(NOT ARG_FILTER)
    set(ARG_FILTER *)
  endif()
  add_test(NAME ${ARG_PREFIX}${ARG_NAME} COMMAND ${ARG_NAME} --gtest_filter=${ARG_FILTER})
  set_tests_properties(${ARG_PREFIX}${ARG_NAME} PROPERTIES
    LABELS "${ARG_LABELS}" ENVIRONMENT "${ARG_ENVIRONMENT}" TIMEOUT ${ARG_TIMEOUT})
endfunction()

# spillway_pytest(FOLDER tests/torch_glue LABELS torch [EMULATED] [ENVIRONMENT …]): the test_*.py of a folder are one ctest
# case, FOLDER.pytest, on the build tree's package: one process imports torch, and one more is forked for their programs. EMULATED
# preloads the shim and the emulated GPU, in this order. NAME, FILE and TIMEOUT (3600 s) are for a second, longer run of a folder
# or of one file. They begin before the cases of C++ programs, which are short, and the folder with the most files first: so no
# core is idle while a long one ends.
function(spillway_pytest)
  cmake_parse_arguments(ARG "EMULATED" "FOLDER;NAME;FILE;TIMEOUT" "LABELS;ENVIRONMENT" ${ARGN})
  set(environment PYTHONPATH=${SPILLWAY_PYTHON_DIR} OMP_NUM_THREADS=1 ${ARG_ENVIRONMENT})
  if(ARG_EMULATED)
    list(APPEND environment SPILLWAY_EMULATE=1
      LD_PRELOAD=${SPILLWAY_LIB_DIR}/libspillway_preload.so:${SPILLWAY_LIB_DIR}/libspillway_emulator.so)
  endif()
  file(GLOB files ${PROJECT_SOURCE_DIR}/${ARG_FOLDER}/test_*.py)
  list(LENGTH files count)
  math(EXPR cost "100 + ${count}")
  if(NOT ARG_NAME)
    cmake_path(GET ARG_FOLDER FILENAME suite)
    set(ARG_NAME ${suite}.pytest)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 3600)
  endif()
  add_test(NAME ${ARG_NAME}
    COMMAND ${Python_EXECUTABLE} -m pytest --rootdir=${PROJECT_SOURCE_DIR} -c ${PROJECT_SOURCE_DIR}/pyproject.toml
            --durations=5 ${PROJECT_SOURCE_DIR}/${ARG_FOLDER}/${ARG_FILE}
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${ARG_NAME} PROPERTIES
    LABELS "${ARG_LABELS}" ENVIRONMENT "${environment}" TIMEOUT ${ARG_TIMEOUT} COST ${cost})
endfunction()

# spillway_bench(NAME heap_bench SRCS … DEPS …): one Google Benchmark program.
function(spillway_bench)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_include_directories(${ARG_NAME} PRIVATE ${PROJECT_SOURCE_DIR})
  list(TRANSFORM ARG_DEPS PREPEND spillway::)
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} spillway::warnings benchmark::benchmark)
endfunction()
