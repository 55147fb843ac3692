// Opens a model, submits a request and prints the text as it comes.
#include <vernier/vernier.h>

#include <cstdio>

int main(int argc, char** argv) {
  vernier::EngineOptions options;
  if (argc > 1) options.model = argv[1];  // without: the embedded demo model
  auto engine = vernier::Engine::open(options);
  if (!engine) {
    std::fprintf(stderr, "%s\n", engine.error().message.c_str());
    return 1;
  }
  auto prompt = (*engine)->tokenize("In the beginning", /*add_special=*/true, /*parse_special=*/false);
  if (!prompt) return 1;

  vernier::Request request;
  request.prompt = *prompt;
  request.sampling.temperature = 0.0F;
  request.sampling.max_tokens = 32;
  auto handle = (*engine)->submit(request);
  if (!handle) return 1;
  while (auto event = handle->next()) std::fputs(event->text.c_str(), stdout);
  std::puts("");
  return 0;
}
