// Opens a region whose functions are compiled for POISE_TARGET, a comma-separated feature list.
// Standard headers must come before it, or their inline functions would be compiled for it too.
#define POISE_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define POISE_PUSH_TARGET(features) \
  POISE_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#else
#define POISE_PUSH_TARGET(features) POISE_PRAGMA(GCC target(features))
#pragma GCC push_options
#endif
POISE_PUSH_TARGET(POISE_TARGET)
