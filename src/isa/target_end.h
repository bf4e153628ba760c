// Closes the region that target_begin.h opened. Nothing that other files need may be defined
// between the two.
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef POISE_PUSH_TARGET
#undef POISE_PRAGMA
