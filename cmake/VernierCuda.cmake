# Turns on the CUDA language for VERNIER_CUDA=ON.
# CMake looks for nvcc on PATH; the toolkit's own default place is tried as well.
find_program(CMAKE_CUDA_COMPILER nvcc HINTS "$ENV{CUDA_HOME}/bin" /usr/local/cuda/bin REQUIRED)
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90a-real CACHE STRING "GPU architectures to build for")
endif()
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
# CMake 3.25 is older than nvcc 13 and has to be told that it can do C++20, and how.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
