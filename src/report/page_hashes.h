// What the page's content security policy admits: base64 of SHA-256 over the style sheet and over
// the script, exactly as they stand between their tags. Both are constant texts; a test compares
// (tools/check_page.py) and prints the value that belongs here.
#pragma once

namespace poise::report {

inline constexpr const char* kStyleHash = "kbTKeyrSTdB0lisVneAbls+5NTP297DyIzYJSQZ1FyQ=";
inline constexpr const char* kScriptHash = "Mwqp6ok/rdgHSgpYOIudyFV+0Ns4ZwzbZ/zHep+j1Z4=";

}  // namespace poise::report
