# Functions that declare Vernier's targets with common flags.

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
endif()

add_library(vernier_flags INTERFACE)
# Flags for the C++ compiler; nvcc, which takes others, has its own in src/backend/cuda/.
function(vernier_compile_flags)
  foreach(flag IN LISTS ARGN)
    target_compile_options(vernier_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${flag}>)
  endforeach()
endfunction()
vernier_compile_flags(
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Woverloaded-virtual
  -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # g++ 12 sees overlapping copies in `"text" + string` where there are none (GCC bug 105651).
  # It also loses track of the members of std::variant.
  vernier_compile_flags(-Wno-restrict -Wno-maybe-uninitialized)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  vernier_compile_flags(-Wreserved-identifier)
endif()
if(VERNIER_WERROR)
  vernier_compile_flags(-Werror)
endif()
if(VERNIER_SANITIZE)
  vernier_compile_flags(-fsanitize=${VERNIER_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(vernier_flags INTERFACE -fsanitize=${VERNIER_SANITIZE})
endif()
if(VERNIER_FUZZ)
  vernier_compile_flags(-fsanitize=fuzzer-no-link)
endif()
if(VERNIER_COVERAGE)
  vernier_compile_flags(--coverage)
  target_link_options(vernier_flags INTERFACE --coverage)
endif()

find_package(Threads REQUIRED)

# vernier_library(NAME SOURCES file... DEPENDS vernier_base...)
# One static library a folder of src/. DEPENDS lists what the folder may include (checked by tools/check_layers.py too).
function(vernier_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC "${CMAKE_SOURCE_DIR}/src" "${CMAKE_SOURCE_DIR}/include")
  target_link_libraries(${name} PUBLIC ${ARG_DEPENDS} PRIVATE vernier_flags)
  set_property(GLOBAL APPEND PROPERTY VERNIER_LIBRARIES ${name})
endfunction()

# vernier_executable(NAME SOURCES file... DEPENDS vernier_cli...)
# A program for users, in the top of the build folder. The C++ run-time is linked in, so it needs nothing but libc;
# the sanitizers' run-times want to intercept it and are left alone.
function(vernier_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} vernier_flags)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
  if(NOT VERNIER_SANITIZE)
    target_link_options(${name} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
endfunction()

# vernier_test(NAME SOURCES file... DEPENDS vernier_base... [LABELS slow] [COST seconds] [SHARDS number])
# One GoogleTest program; tests find their files through VERNIER_TEST_DATA. ctest runs it as a whole, or dealt out to
# SHARDS tests NAME_1, NAME_2 and so on, so that a long one doesn't run alone at the end. What has the largest COST begins
# first. The label "slow" keeps a test out of the sanitizer run of ./check (which says so).
function(vernier_test name)
  cmake_parse_arguments(ARG "" "COST;SHARDS" "SOURCES;DEPENDS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}/tests")
  target_compile_definitions(${name} PRIVATE VERNIER_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data")
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} vernier_flags GTest::gtest GTest::gtest_main)
  if(NOT VERNIER_SANITIZE)
    target_link_options(${name} PRIVATE -static-libstdc++ -static-libgcc)  # tests of a GPU run on bare machines
  endif()
  if(NOT ARG_COST)
    set(ARG_COST 1)
  endif()
  if(NOT ARG_SHARDS)
    add_test(NAME ${name} COMMAND ${name})
    set(tests ${name})
  else()
    foreach(shard RANGE 1 ${ARG_SHARDS})
      math(EXPR index "${shard} - 1")
      add_test(NAME ${name}_${shard} COMMAND ${name})
      set_tests_properties(${name}_${shard} PROPERTIES
        ENVIRONMENT "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${index}")
      list(APPEND tests ${name}_${shard})
    endforeach()
  endif()
  set_tests_properties(${tests} PROPERTIES TIMEOUT 2400 LABELS "${ARG_LABELS}" COST ${ARG_COST})
endfunction()

if(VERNIER_COVERAGE)
  # Runs the tests, then prints line coverage of src/ and include/ (Debian's gcovr).
  add_custom_target(coverage_report
    COMMAND ${CMAKE_CTEST_COMMAND} --output-on-failure
    COMMAND gcovr --root "${CMAKE_SOURCE_DIR}" --filter "${CMAKE_SOURCE_DIR}/src" --filter "${CMAKE_SOURCE_DIR}/include"
            --object-directory "${CMAKE_BINARY_DIR}"
    WORKING_DIRECTORY "${CMAKE_BINARY_DIR}" USES_TERMINAL)
endif()
