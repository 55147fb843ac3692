// Whether the tests are built with a sanitizer, under which kernels are ten to a hundred times as slow. A test with
// shapes of its own there asks for it and says what is left out; the shapes of other builds are the ones that count.
#pragma once

namespace vernier::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace vernier::test
