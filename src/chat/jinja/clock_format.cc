#include "chat/jinja/clock_format.h"

#include <array>
#include <ctime>

namespace vernier::jinja {
namespace {

constexpr std::array<std::string_view, 7> kWeekdays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                       "Thursday", "Friday", "Saturday"};
constexpr std::array<std::string_view, 12> kMonths = {"January",   "February", "March",    "April",
                                                      "May",       "June",     "July",     "August",
                                                      "September", "October",  "November", "December"};

bool is_leap(int year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

/// Days of the year before the first of `month`.
int days_before(int year, int month) {
  static constexpr std::array<int, 12> kDays = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  return kDays[static_cast<std::size_t>(month - 1)] + (month > 2 && is_leap(year) ? 1 : 0);
}

/// 0 is Sunday. Counts days from a year that began the 400-year cycle.
int weekday(const TemplateTime& time) {
  const int year = time.year - 1;
  const int days = year * 365 + year / 4 - year / 100 + year / 400 + days_before(time.year, time.month) + time.day;
  return days % 7;
}

/// A number filled to `width`; `flag` is '-' (no fill), '_' (spaces), or none.
std::string number(int value, int width, char flag, char fill = '0') {
  if (flag == '-') return fmt::format("{}", value);
  std::string digits = fmt::format("{}", value);
  if (flag == '_') fill = ' ';
  while (static_cast<int>(digits.size()) < width) digits.insert(digits.begin(), fill);
  return digits;
}

std::string_view composite(char code) {
  switch (code) {
    case 'c': return "%a %b %e %H:%M:%S %Y";
    case 'D':
    case 'x': return "%m/%d/%y";
    case 'F': return "%Y-%m-%d";
    case 'R': return "%H:%M";
    case 'T':
    case 'X': return "%H:%M:%S";
    default: return {};
  }
}

Result<std::string> field(char code, char flag, const TemplateTime& time) {
  const auto month = static_cast<std::size_t>(time.month - 1);
  const int hour12 = time.hour % 12 == 0 ? 12 : time.hour % 12;
  switch (code) {
    case 'a': return std::string(kWeekdays[static_cast<std::size_t>(weekday(time))].substr(0, 3));
    case 'A': return std::string(kWeekdays[static_cast<std::size_t>(weekday(time))]);
    case 'b':
    case 'h': return std::string(kMonths[month].substr(0, 3));
    case 'B': return std::string(kMonths[month]);
    case 'd': return number(time.day, 2, flag);
    case 'e': return number(time.day, 2, flag, ' ');
    case 'H': return number(time.hour, 2, flag);
    case 'I': return number(hour12, 2, flag);
    case 'j': return number(days_before(time.year, time.month) + time.day, 3, flag);
    case 'm': return number(time.month, 2, flag);
    case 'M': return number(time.minute, 2, flag);
    case 'p': return std::string(time.hour < 12 ? "AM" : "PM");
    case 'S': return number(time.second, 2, flag);
    case 'w': return number(weekday(time), 1, flag);
    case 'y': return number(time.year % 100, 2, flag);
    case 'Y': return number(time.year, 1, flag);
    case 'Z':
    case 'z': return std::string();  // a local time without a zone
    case 'n': return std::string("\n");
    case 't': return std::string("\t");
    case '%': return std::string("%");
    default: return error("strftime_now: unknown field '%{}'", escape(std::string_view(&code, 1)));
  }
}

}  // namespace

Status append_time(TextBuilder& out, std::string_view format, const TemplateTime& time) {
  for (std::size_t at = 0; at < format.size() && out.ok();) {
    if (format[at] != '%') {
      const std::size_t end = std::min(format.find('%', at), format.size());
      out.append(format.substr(at, end - at));
      at = end;
      continue;
    }
    ++at;
    const bool has_flag = at < format.size() && (format[at] == '-' || format[at] == '_');
    const char flag = has_flag ? format[at++] : '\0';
    if (at >= format.size()) return error("strftime_now: the format ends in '%'");
    const char code = format[at++];
    if (const std::string_view parts = composite(code); !parts.empty()) {
      VN_TRY(append_time(out, parts, time));
    } else {
      VN_ASSIGN(const std::string text, field(code, flag, time));
      out.append(text);
    }
  }
  return out.status();
}

TemplateTime local_time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return {.year = local.tm_year + 1900,
          .month = local.tm_mon + 1,
          .day = local.tm_mday,
          .hour = local.tm_hour,
          .minute = local.tm_min,
          .second = local.tm_sec};
}

}  // namespace vernier::jinja
