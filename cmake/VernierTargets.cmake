# Functions that declare Vernier's targets with common flags.

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
endif()

add_library(vernier_flags INTERFACE)
target_compile_options(vernier_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Woverloaded-virtual
  -ffp-contract=off)
if(VERNIER_WERROR)
  target_compile_options(vernier_flags INTERFACE -Werror)
endif()
if(VERNIER_SANITIZE)
  target_compile_options(vernier_flags INTERFACE -fsanitize=${VERNIER_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(vernier_flags INTERFACE -fsanitize=${VERNIER_SANITIZE})
endif()
if(VERNIER_FUZZ)
  target_compile_options(vernier_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(VERNIER_COVERAGE)
  target_compile_options(vernier_flags INTERFACE --coverage)
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
endfunction()

# vernier_test(NAME SOURCES file... DEPENDS vernier_base...)
# One GoogleTest program, run by ctest as a whole; tests find their files through VERNIER_TEST_DATA.
function(vernier_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}/tests")
  target_compile_definitions(${name} PRIVATE VERNIER_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data")
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} vernier_flags GTest::gtest GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
endfunction()
