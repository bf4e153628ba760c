// Requests, inputs and the clock of a worker. The contract is in worker.h and protocol.py.
// Must not happen here: anything between the clock's two readings but the calls.
#include "bench/peers/worker.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <istream>
#include <new>
#include <nlohmann/json.hpp>
#include <ostream>
#include <stdexcept>
#include <utility>

#include "io/elements.h"
#include "io/open.h"

namespace peers {
namespace {

using Json = nlohmann::json;

// A request that cannot be carried out, as one sentence.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

const Json& field(const Json& object, const char* name) {
  if (!object.is_object()) throw Refusal("request: expected a JSON object");
  const auto it = object.find(name);
  if (it == object.end()) throw Refusal(std::string("request: no field '") + name + "'");
  return *it;
}

std::string text(const Json& object, const char* name) {
  const Json& value = field(object, name);
  if (!value.is_string()) throw Refusal(std::string(name) + ": expected a string");
  return value.get<std::string>();
}

bool flag(const Json& object, const char* name) {
  const Json& value = field(object, name);
  if (!value.is_boolean()) throw Refusal(std::string(name) + ": expected true or false");
  return value.get<bool>();
}

// An integer in [least, most].
std::int64_t integer(const Json& object, const char* name, std::int64_t least, std::int64_t most) {
  const Json& value = field(object, name);
  if (!value.is_number_integer() || value.get<std::int64_t>() < least ||
      value.get<std::int64_t>() > most)
    throw Refusal(std::string(name) + ": " + value.dump() + ", expected an integer from " +
                  std::to_string(least) + " to " + std::to_string(most));
  return value.get<std::int64_t>();
}

std::string extents_text(const poise::ConstTensor& tensor) {
  std::string text = "[";
  for (int axis = 0; axis < tensor.rank; ++axis)
    text += (axis > 0 ? ", " : "") + std::to_string(tensor.extent(axis));
  return text + "]";
}

class Server {
 public:
  explicit Server(Contestant& contestant) : contestant_(contestant) {}

  Json answer(const Json& request) {
    const std::string verb = text(request, "verb");
    if (verb == "hello") return {{"versions", contestant_.versions()}};
    if (verb == "load") return load(request);
    if (verb == "check") return check(text(request, "output"));
    if (verb == "time") return time(integer(request, "repeats", 1, kMostRepeats));
    throw Refusal("verb: '" + verb + "', expected hello, load, check or time");
  }

 private:
  static constexpr std::int64_t kMostRepeats = 100'000'000;
  static constexpr std::int64_t kMostExtent = 1 << 24;
  static constexpr int kMostThreads = 4096;

  Json load(const Json& request) {
    ready_ = false;
    problem_ = {};
    const Json& shape = field(request, "shape");
    Problem p;
    p.batch = integer(shape, "batch", 1, kMostExtent);
    p.q_heads = integer(shape, "q_heads", 1, kMostExtent);
    p.kv_heads = integer(shape, "kv_heads", 1, kMostExtent);
    p.q_len = integer(shape, "q_len", 1, kMostExtent);
    p.kv_len = integer(shape, "kv_len", 1, kMostExtent);
    p.head_dim = integer(shape, "head_dim", 1, kMostExtent);
    p.causal = flag(shape, "causal");
    p.window = integer(shape, "window", 0, kMostExtent);
    p.work = text(shape, "work");
    p.threads = static_cast<int>(integer(request, "threads", 1, kMostThreads));
    const std::string layout = text(shape, "layout");
    if (layout != "bhld" && layout != "blhd")
      throw Refusal("layout: '" + layout + "', expected bhld or blhd");

    poise::io::File file;
    if (const poise::Error error = poise::io::open(text(request, "inputs"), &file))
      throw Refusal(error.message());
    const bool strided = layout == "blhd";
    const std::vector<std::int64_t> of_query = {p.batch, p.q_heads, p.q_len, p.head_dim};
    const std::vector<std::int64_t> of_key = {p.batch, p.kv_heads, p.kv_len, p.head_dim};
    p.query = input(file, "query", of_query, strided, &p);
    p.key = input(file, "key", of_key, strided, &p);
    p.value = input(file, "value", of_key, strided, &p);
    if (flag(shape, "padding")) p.lengths = input(file, "lengths", {p.batch}, false, &p);
    for (const auto& [name, like] : names(request, "reads"))
      p.reads[name] = input(file, name.c_str(), like == "query" ? of_query : of_key, strided, &p);
    for (const auto& [name, like] : names(request, "results"))
      p.results.emplace_back(name, result(like == "query" ? p.query : p.key, &p));

    problem_ = std::move(p);
    std::string ran;
    if (const std::string reason = contestant_.load(problem_, &ran); !reason.empty())
      throw Refusal(reason);
    ready_ = true;
    return {{"ran", ran}};
  }

  // The pairs [name, like] of a request.
  static std::vector<std::pair<std::string, std::string>> names(const Json& request,
                                                                const char* list) {
    std::vector<std::pair<std::string, std::string>> pairs;
    for (const Json& pair : field(request, list)) {
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() ||
          (pair[1] != "query" && pair[1] != "key" && pair[1] != "value"))
        throw Refusal(std::string(list) + ": " + pair.dump() +
                      ", expected a name and query, key or value");
      pairs.emplace_back(pair[0], pair[1]);
    }
    return pairs;
  }

  // Memory for a result in the layout of `like`.
  static poise::Tensor result(const poise::ConstTensor& like, Problem* p) {
    std::int64_t bytes = poise::size_bytes(like.dtype);
    for (int axis = 0; axis < like.rank; ++axis) bytes *= like.extent(axis);
    p->memory.push_back(aligned(bytes));
    return {p->memory.back().get(), like.dtype, like.rank, like.extents, like.strides};
  }

  // Copies a tensor of the file; `extents` are those of the view. The file orders axes 1 and 2 of a
  // strided one the other way around.
  static poise::ConstTensor input(const poise::io::File& file, const char* name,
                                  const std::vector<std::int64_t>& extents, bool strided,
                                  Problem* p) {
    poise::ConstTensor tensor;
    if (const poise::Error error = file.tensor(name, &tensor)) throw Refusal(error.message());
    std::vector<std::byte> packed;
    if (const poise::Error error = poise::io::pack(tensor, name, &packed))
      throw Refusal(error.message());
    p->memory.push_back(aligned(static_cast<std::int64_t>(packed.size())));
    std::memcpy(p->memory.back().get(), packed.data(), packed.size());
    tensor.data = p->memory.back().get();
    if (strided && tensor.rank == poise::kMaxRank) tensor = tensor.transposed(1, 2);
    bool same = tensor.rank == static_cast<int>(extents.size());
    for (int axis = 0; same && axis < tensor.rank; ++axis)
      same = tensor.extent(axis) == extents[static_cast<std::size_t>(axis)];
    if (!same)
      throw Refusal(std::string(name) + ": the file holds " + extents_text(tensor) +
                    ", which is not what the shape says");
    return tensor;
  }

  void call() {
    if (const poise::Error error = contestant_.call()) throw Refusal(error.message());
  }

  Json check(const std::string& path) {
    Json answer = time(1);
    std::ofstream file(path, std::ios::binary);
    for (const auto& [name, result] : problem_.results) {
      std::vector<float> widened;
      if (const poise::Error error = poise::io::widen(result, &widened))
        throw Refusal(error.message());
      file.write(reinterpret_cast<const char*>(widened.data()),
                 static_cast<std::streamsize>(widened.size() * sizeof(float)));
    }
    if (!file.flush()) throw Refusal("output: cannot write " + path);
    return answer;
  }

  Json time(std::int64_t repeats) {
    if (!ready_) throw Refusal("no problem is loaded: send load first");
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < repeats; ++i) call();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    return {{"seconds", elapsed.count() / static_cast<double>(repeats)}};
  }

  Contestant& contestant_;
  Problem problem_;
  bool ready_ = false;
};

}  // namespace

void Free::operator()(void* memory) const { std::free(memory); }

poise::ConstTensor Problem::read(const std::string& name) const {
  const auto it = reads.find(name);
  return it == reads.end() ? poise::ConstTensor{} : it->second;
}

poise::Tensor Problem::result(const std::string& name) const {
  for (const auto& [own, tensor] : results)
    if (own == name) return tensor;
  return {};
}

Memory aligned(std::int64_t bytes) {
  const std::size_t size = (static_cast<std::size_t>(bytes) / kAlignment + 1) * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, size);
  if (memory == nullptr) throw std::bad_alloc();
  return Memory(static_cast<std::byte*>(memory));
}

void serve(Contestant& contestant, std::istream& in, std::ostream& answers) {
  Server server(contestant);
  for (std::string line; std::getline(in, line);) {
    Json answer;
    try {
      answer = server.answer(Json::parse(line));
    } catch (const Json::parse_error&) {
      answer = {{"refused", "request: not JSON"}};
    } catch (const std::bad_alloc&) {
      answer = {{"refused", "out of memory"}};
    } catch (const std::exception& error) {
      answer = {{"refused", error.what()}};
    }
    // Bytes of a request that are not UTF-8 may be quoted in a refusal.
    answers << answer.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  }
}

}  // namespace peers
