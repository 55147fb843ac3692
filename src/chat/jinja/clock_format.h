// strftime() in the C locale, for strftime_now(). Own code: the C library's depends on locale and time zone.
#pragma once

#include <string_view>

#include "chat/jinja/builders.h"

namespace vernier::jinja {

/// Appends `time` as `format` says: %a %A %b %B %c %d %D %e %F %H %I %j %m %M %p %S %T %w %x %X %y %Y %Z %z %%, with
/// the flags - and _ between % and a number. Other letters are an error.
[[nodiscard]] Status append_time(TextBuilder& out, std::string_view format, const TemplateTime& time);

/// The local time of this machine.
[[nodiscard]] TemplateTime local_time_now();

}  // namespace vernier::jinja
