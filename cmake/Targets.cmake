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

# spillway_test(NAME heap_test SRCS … DEPS … LABELS unit [EMULATED]): one GoogleTest program; its cases are ctest cases.
# EMULATED links the emulated GPU and runs on it. PREFIX keeps the names apart where two programs share their cases, FILTER
# chooses some of them. A case that takes more than TIMEOUT seconds (300) fails.
function(spillway_test)
  cmake_parse_arguments(ARG "EMULATED;APART" "NAME;PREFIX;FILTER;TIMEOUT" "SRCS;DEPS;LABELS;ENVIRONMENT" ${ARGN})
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
  set(apart)
  if(ARG_APART)
    set(apart APART)
  endif()
  spillway_cases(NAME ${ARG_NAME} ${apart} PREFIX "${ARG_PREFIX}" FILTER "${ARG_FILTER}" TIMEOUT "${ARG_TIMEOUT}"
    LABELS ${ARG_LABELS} ENVIRONMENT ${ARG_ENVIRONMENT})
endfunction()

# spillway_cases(NAME heap_test [PREFIX late.] [FILTER Late.*] LABELS unit [ENVIRONMENT …]): the cases of a GoogleTest program
# as ctest cases. Called again with another PREFIX, it runs them in another environment. Under the address sanitizer,
# whose start takes most of a short process's time, they are one ctest case, except those that need processes of their own: APART.
function(spillway_cases)
  cmake_parse_arguments(ARG "APART" "NAME;PREFIX;FILTER;TIMEOUT" "LABELS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(NOT ARG_FILTER)
    set(ARG_FILTER *)
  endif()
  if(SPILLWAY_SANITIZE MATCHES address AND NOT ARG_APART)
    add_test(NAME ${ARG_PREFIX}${ARG_NAME} COMMAND ${ARG_NAME} --gtest_filter=${ARG_FILTER})
    math(EXPR timeout "6 * ${ARG_TIMEOUT}")
    set_tests_properties(${ARG_PREFIX}${ARG_NAME} PROPERTIES
      LABELS "${ARG_LABELS}" ENVIRONMENT "${ARG_ENVIRONMENT}" TIMEOUT ${timeout})
    return()
  endif()
  # The properties are expanded four times before they reach ctest, and each time a list falls apart unless escaped.
  string(REPEAT "\\" 8 escape)
  string(REPLACE ";" "${escape};" labels "${ARG_LABELS}")
  string(REPLACE ";" "${escape};" environment "${ARG_ENVIRONMENT}")
  gtest_discover_tests(${ARG_NAME} TEST_PREFIX "${ARG_PREFIX}" TEST_FILTER "${ARG_FILTER}" TEST_LIST ${ARG_NAME}_${ARG_PREFIX}
    NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${labels}" ENVIRONMENT "${environment}" TIMEOUT ${ARG_TIMEOUT})
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
