// Templates that try to exhaust memory, time or the stack, or to reach what isn't theirs: each ends with an error.
#include "chat_test_support.h"

namespace vernier::test {
namespace {

std::string repeated(std::string_view text, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += text;
  return out;
}

/// Renders under limits that are soon reached, so that the tests are quick under sanitizers too.
Result<std::string> render_tight(std::string_view source) {
  TemplateLimits limits = patient_limits();
  limits.max_memory_bytes = 8U << 20U;
  limits.max_steps = 100'000;
  return render(source, R"({"messages":[]})", limits);
}

TEST(HostileTemplate, SyntaxErrorsNameTheirLine) {
  expect_error(render("a\n\n{% if x %}\n{{ y }\n{% endif %}"), "template line 4: unexpected '}'");
  expect_error(render("{% if x %}\n"), "template line 1: Unexpected end of template, looking for 'elif'");
  expect_error(render("\n{% endif %}"), "template line 2: Encountered unknown tag 'endif'");
  expect_error(render("\n\n{{ 'abc }}"), "template line 3: unexpected char");
  expect_error(render("{% set x = 99999999999999999999 %}"), "beyond 64 bits");
  expect_error(render("{% include 'x' %}"), "template line 1: the tag 'include' is not supported");
  expect_error(render("\n{# never closed"), "template line 2: Missing end of comment tag");
}

// Found by the fuzzer: the undefined slice was taken for a string.
TEST(HostileTemplate, BoundsOfStringMethodsOfOtherTypes) {
  for (const char* call : {"'hi'.startswith('h', '+')", "'hi'.endswith('i', none, [])", "'hi'.find('h', 1.5)",
                           "'hi'.rfind('h', {})", "'hi'.count('h', 'x')"}) {
    expect_error(render(std::string("{{ ") + call + " }}"), "slice indices must be integers");
  }
}

TEST(HostileTemplate, UnknownFilterNamesItsLine) {
  expect_error(render("x\ny\n{{ 'a' | nosuchfilter }}"), "template line 3: No filter named 'nosuchfilter'.");
  expect_error(render("x\n{{ 'a' is nosuchtest }}"), "template line 2: No test named 'nosuchtest'.");
  EXPECT_EQ(render("{% if false %}{{ 'a' | nosuchfilter }}{% endif %}ok").value_or("error"), "ok");
}

TEST(HostileTemplate, RunTimeErrorsNameTheInnermostLine) {
  expect_error(render("a\n{% for x in [1] %}\n{{ x +\n 'y' }}\n{% endfor %}"), "template line 3: unsupported operand");
  expect_error(render("{% macro f() %}\n\n{{ raise_exception('no') }}{% endmacro %}\n\n{{ f() }}"),
               "template line 3: no");
}

TEST(HostileTemplate, Memory) {
  expect_error(render_tight("{{ range(10**9) }}"), "range of 1000000000 items");
  expect_error(render_tight("{{ range(-9223372036854775807, 9223372036854775807) }}"), "above the limit");
  expect_error(render_tight("{{ 'a' * 10**9 }}"), "bytes of memory");
  expect_error(render_tight("{{ 'ab' * 9223372036854775807 }}"), "bytes of memory");
  expect_error(render_tight("{{ [0] * 10**9 }}"), "template line 1");
  expect_error(
      render_tight("{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"),
      "template line 1");
  expect_error(
      render_tight("{% set ns = namespace(x='ab') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"),
      "bytes of memory");
  expect_error(render_tight("{{ 'x'.center(10**12) }}"), "bytes of memory");
  expect_error(render_tight("{{ '%1000000000d' % 1 }}"), "above");
  expect_error(render_tight("{{ '{:1000000000}'.format(1) }}"), "above");
  expect_error(render_tight("{{ ('a' * 10**6).replace('', 'b' * 10**6) }}"), "bytes of memory");
  expect_error(render_tight("{{ ('a\n' * 10**5) | indent(10**6) }}"), "bytes of memory");
  expect_error(render_tight("{{ ('b' * 1000).join(range(50000) | map('string')) }}"), "template line 1");
  expect_error(render_tight("{{ [1, 2] | batch(10**12, 0) | list }}"), "template line 1");
  expect_error(render_tight("{{ [1] | tojson(indent=10**9) }}"), "above");
}

TEST(HostileTemplate, DefaultLimits) {
  expect_error(render("{{ 'a' * 10**9 }}"), "the template needs more than 134217728 bytes of memory");
  expect_error(render("{% for i in range(1000) %}{% for j in range(1000) %}x{% endfor %}{% endfor %}"),
               "the template takes more than 1000000 steps");
}

TEST(HostileTemplate, Output) {
  expect_error(render("{% set x = 'a' * 1000000 %}{% for i in range(100) %}{{ x }}{% endfor %}"),
               "the output exceeds 16777216 bytes");
  TemplateLimits limits = patient_limits();
  limits.max_output_bytes = 10;
  EXPECT_EQ(render("{{ 'a' * 10 }}", R"({"messages":[]})", limits).value_or("error"), "aaaaaaaaaa");
  expect_error(render("{{ 'a' * 11 }}", R"({"messages":[]})", limits), "the output exceeds 10 bytes");
}

TEST(HostileTemplate, Steps) {
  const std::string nested_loops = repeated("{% for i in range(1000) %}", 5) + "x" + repeated("{% endfor %}", 5);
  expect_error(render_tight(nested_loops), "more than 100000 steps");
  expect_error(render_tight("{% set ns = namespace(n=0) %}{% for i in range(1000) %}{% for j in range(1000) %}"
                            "{% set ns.n = ns.n + 1 %}{% endfor %}{% endfor %}"),
               "more than 100000 steps");
  // Printing or comparing a graph that shares its parts takes time without end, though it is small.
  const std::string shared =
      "{% set ns = namespace(x=[1]) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
  expect_error(render_tight(shared + "{{ ns.x }}"), "template line 1");
  expect_error(render_tight(shared + "{{ ns.x | tojson }}"), "template line 1");
  expect_error(render_tight(shared + "{% set a = ns.x %}{{ [a] == [[a[0], a[1]]] }}"), "more than 100000 steps");
  expect_error(
      render_tight(
          "{% set a = 'a' * 10**6 %}{% for i in range(100000) %}{% set b = ('a' * 500000 ~ 'b') in a %}{% endfor %}"),
      "more than 100000 steps");
}

TEST(HostileTemplate, ProcessorTime) {
  TemplateLimits limits;
  limits.max_steps = ~std::uint64_t{0} >> 1U;
  limits.max_cpu_time = std::chrono::milliseconds(50);
  expect_error(render("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
                      R"({"messages":[]})", limits),
               "longer than 50 ms");
}

TEST(HostileTemplate, DeepSource) {
  expect_error(render("{{ " + repeated("(", 100000) + "1" + repeated(")", 100000) + " }}"), "nested deeper than 128");
  expect_error(render("{{ " + repeated("[", 100000)), "nested deeper than 128");
  expect_error(render("{{ " + repeated("{1:", 80000)), "nested deeper than 128");
  expect_error(render("{{ " + repeated("not ", 50000) + "1 }}"), "nested deeper than 128");
  expect_error(render("{{ " + repeated("-", 100000) + "1 }}"), "nested deeper than 128");
  expect_error(render("{{ " + repeated("1 if 1 else ", 20000) + "1 }}"), "nested deeper than 128");
  expect_error(render("{{ a" + repeated(".b", 100000) + " }}"), "nested deeper than 128");
  expect_error(render("{{ a" + repeated("[0]", 80000) + " }}"), "nested deeper than 128");
  expect_error(render("{{ a" + repeated("|e", 100000) + " }}"), "nested deeper than 128");
  expect_error(render("{{ a" + repeated("()", 100000) + " }}"), "nested deeper than 128");
  expect_error(render(repeated("{% if 1 %}", 20000)), "nested deeper than 128");
  expect_error(render(repeated("{% for i in [1] %}", 10000)), "nested deeper than 128");
  expect_error(render("{% set " + repeated("(", 100000)), "nested deeper than 128");
  expect_error(render("{{ 1" + repeated(" is a", 20000)), "template line 1");
  expect_error(render("{{ 1" + repeated(" is a(1", 20000)), "nested deeper than 128");
}

TEST(HostileTemplate, LongFlatSourceIsFine) {
  EXPECT_EQ(render("{{ 0" + repeated(" + 1", 50000) + " }}").value_or("error"), "50000");
  EXPECT_EQ(render("{{ ''" + repeated(" ~ ''", 40000) + " }}").value_or("error"), "");
  EXPECT_EQ(render("{{ 1" + repeated(" and 1", 30000) + " }}").value_or("error"), "1");
  EXPECT_EQ(render("{% if 0 %}" + repeated("{% elif 0 %}", 15000) + "{% else %}x{% endif %}").value_or("error"), "x");
}

TEST(HostileTemplate, SourceSize) {
  expect_error(render(repeated("x", 262145)), "template of 262145 bytes exceeds the limit of 262144");
  EXPECT_EQ(render(repeated("x", 262144)).value_or("error").size(), 262144U);
}

TEST(HostileTemplate, Recursion) {
  expect_error(render("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), "nested deeper than 600 levels");
  expect_error(render("{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{{ caller() }}{% endmacro %}"
                      "{% call f() %}{% endcall %}"),
               "template line 1");
  expect_error(render("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"), "nested deeper than 600 levels");
  expect_error(render("{{ 'aaaa' | map(*(['map'] * 5000)) | list }}"), "template line 1");
  expect_error(render("{% set ns = namespace(x=[]) %}{% for i in range(10000) %}{% set ns.x = [ns.x] %}{% endfor %}"),
               "values nested deeper than 128 levels");
  expect_error(
      render("{% set ns = namespace(x={}) %}{% for i in range(10000) %}{% set ns.x = {'a': ns.x} %}{% endfor %}"),
      "values nested deeper than 128 levels");
}

TEST(HostileTemplate, RecursionOfUsefulDepthWorks) {
  EXPECT_EQ(render("{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{% else %}end{% endif %}{% endmacro %}{{ f(100) }}")
                .value_or("error"),
            "end");
}

TEST(HostileTemplate, ThingsThatHoldThemselvesAreFreed) {
  // Whether they are is the leak checker's to say.
  EXPECT_EQ(render("{% set ns = namespace() %}{% set ns.x = [ns] %}ok").value_or("error"), "ok");
  EXPECT_EQ(render("{% set ns = namespace() %}{% for i in [1] %}{% macro f() %}{{ f }}{% endmacro %}"
                   "{% set ns.f = f %}{% endfor %}ok")
                .value_or("error"),
            "ok");
  EXPECT_EQ(render("{% for i in [1, 2] %}{% set _ = loop.changed([loop]) %}{% endfor %}ok").value_or("error"), "ok");
  expect_error(render("{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns }}"), "holds itself");
}

TEST(HostileTemplate, NothingOfTheHostIsInReach) {
  EXPECT_EQ(render("{{ ''.__class__ }}{{ messages.__class__ }}{{ range.__globals__ }}{{ ''['__class__'] }}")
                .value_or("error"),
            "");
  expect_error(render("{{ ''.__class__.__mro__ }}"), "'str object' has no attribute '__class__'");
  expect_error(render("{{ [].__class__.__bases__[0].__subclasses__() }}"), "template line 1");
  expect_error(render("{{ '{0.__class__.__init__}'.format(1) }}"), "template line 1");
  expect_error(
      render("{{ messages | map(attribute='__class__.__mro__') | list }}", R"({"messages":[{"role":"user"}]})"),
      "template line 1");
  expect_error(render("{{ [1].append(2) }}"), "access to attribute 'append' of 'list' object is unsafe");
  expect_error(render("{{ messages[0].update({'role': 'system'}) }}", R"({"messages":[{"role":"user"}]})"), "unsafe");
}

TEST(HostileTemplate, IllFormedTextIsReplaced) {
  EXPECT_EQ(render("a\xFF{{ 'b\xC0' }}").value_or("error"), "a\uFFFDb\uFFFD");
  TemplateRequest request;
  JsonObject message;
  message.set("role", Json("user"));
  message.set("content", Json(std::string("x\xE4\xB8y")));
  request.messages = JsonArray{Json(std::move(message))};
  const auto compiled = ChatTemplate::compile("{{ messages[0].content }}{{ messages[0].content | length }}");
  ASSERT_TRUE(compiled.has_value());
  EXPECT_EQ(compiled->render(request).value_or("error"), "x\uFFFDy3");
}

TEST(HostileTemplate, RaisedTextStaysOnOneLine) {
  expect_error(render("{{ raise_exception('a\\nb\\x1b[31m it\\'s') }}"), "template line 1: a\\nb\\x1B[31m it's");
  const auto long_text = render("{{ raise_exception('x' * 100000) }}");
  ASSERT_FALSE(long_text.has_value());
  EXPECT_LT(long_text.error().message.size(), 5000U);
}

TEST(HostileTemplate, ManyMessages) {
  JsonArray messages;
  for (int i = 0; i < 100000; ++i) {
    JsonObject message;
    message.set("role", Json("user"));
    message.set("content", Json("hi"));
    messages.emplace_back(std::move(message));
  }
  JsonObject request;
  request.set("messages", Json(std::move(messages)));
  const Json json(std::move(request));
  EXPECT_EQ(render_json("{{ messages | length }}", json).value_or("error"), "100000");
  expect_error(
      render_json("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}", json),
      "steps");
}

}  // namespace
}  // namespace vernier::test
