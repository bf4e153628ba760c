// poise inspect FILE: what a tensor file holds, without reading its data.
//
// In: one .npy, .npz or .safetensors file. Out: its metadata and a line per tensor on standard
// output. Names and metadata come from outside and are printed with control characters escaped.
// Must not happen here: looking at elements.
#include <string>
#include <vector>

#include "failure.h"
#include "io/message.h"
#include "io/open.h"
#include "output.h"
#include "verbs.h"

namespace poise::cli {
namespace {

std::string line(const io::Entry& entry) {
  std::string text = "  " + (entry.name.empty() ? "(the array)" : io::in_quotes(entry.name)) +
                     "  " + io::in_quotes(entry.dtype) + "  " + io::shape_text(entry.shape) + "  " +
                     std::to_string(entry.size_bytes) + " bytes";
  if (entry.deflated) text += ", deflated";
  if (!entry.tensor) text += ", not a tensor poise can use";
  return text + '\n';
}

int inspect(const std::string& path) {
  io::File file;
  throw_if(io::open(path, &file));
  std::string text = io::on_one_line(path) + ": " + name(file.format()) + ", " +
                     std::to_string(file.size_bytes()) + " bytes, " +
                     std::to_string(file.entries().size()) +
                     (file.entries().size() == 1 ? " tensor\n" : " tensors\n");
  for (const auto& [key, value] : file.metadata())
    text += "  " + io::in_quotes(key) + " = " + io::in_quotes(value) + '\n';
  for (const io::Entry& entry : file.entries()) text += line(entry);
  print(text);
  return kExitDone;
}

}  // namespace

Run add_inspect(CLI::App& app) {
  auto* verb = app.add_subcommand("inspect", "List what a .npy, .npz or .safetensors file holds");
  auto path = std::make_shared<std::string>();
  verb->add_option("FILE", *path, "the file")->required();
  verb->footer(
      "Examples:\n"
      "  poise inspect q.npy\n"
      "  poise inspect recorded.safetensors");
  return [path](const Session&) { return inspect(*path); };
}

}  // namespace poise::cli
