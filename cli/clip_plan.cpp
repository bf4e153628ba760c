// Joining report, map and checkpoint.
//
// Every head becomes pieces: entries [begin, begin + count) along one axis of one tensor, each with
// the role whose factor it takes. A row that several heads or layers name takes the smallest factor
// that any of them asks of it. Layers of the map are checked whether or not one of their heads
// changes, so that a wrong map shows at once.
#include "clip_plan.h"

#include <poise/advice.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>

#include "failure.h"
#include "io/message.h"

namespace poise::cli {
namespace {

// Entries of a tensor that belong to one head.
struct Piece {
  const io::ListedTensor* tensor;
  std::size_t axis;
  std::int64_t begin, count;
  double WeightFactors::*factor;
};

// The factor of a gain that all heads share: none of them can be clipped alone.
constexpr double WeightFactors::*kShared = nullptr;

struct HeadPieces {
  const io::HeadScore* score;  // nullptr where the report does not have the head
  std::vector<Piece> pieces;
  WeightFactors factors;
  bool clipped = false;  // by itself, not through weights it shares
};

struct Factors {
  std::size_t axis;
  std::vector<double> values;
};
using FactorTable = std::map<const io::ListedTensor*, Factors>;

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

WeightRule rule_of(const io::MapLayer& layer) {
  return layer.latent ? WeightRule::mla : weight_rule(layer.q_heads, layer.kv_heads, false);
}

// The pieces of one layer's heads.
class LayerPieces {
 public:
  LayerPieces(const io::MapLayer& layer, const ClipInputs& inputs)
      : layer_(layer), inputs_(inputs) {}

  std::vector<Piece> of(std::int64_t head) {
    pieces_.clear();
    const std::int64_t key_head = head / (layer_.q_heads / layer_.kv_heads);
    add_side(layer_.query, layer_.query_norm, head, layer_.q_heads, &WeightFactors::query);
    if (layer_.rope_dim > 0)
      add_rows(layer_.query, layer_.query.row_of(head) + layer_.nope_dim, layer_.rope_dim,
               &WeightFactors::query_rope);
    add_side(layer_.key, layer_.key_norm, key_head, layer_.kv_heads, &WeightFactors::key);
    return pieces_;
  }

 private:
  Failure failure(const std::string& sentence) const {
    return Failure(inputs_.map_path + ": layer " + io::in_quotes(layer_.label) + ": " + sentence);
  }

  // The factor of a side acts on its gain where it is normalised: what the projection does to the
  // size of q or k is then divided out again.
  void add_side(const io::Projection& projection, const io::Gain& norm, std::int64_t head,
                std::int64_t heads, double WeightFactors::*factor) {
    if (norm.weight.empty())
      return add_rows(projection, projection.row_of(head), layer_.nope_dim, factor);
    find_rows(projection);
    for (const std::string& name : {norm.weight, norm.bias})
      if (!name.empty()) add_gain(name, head, heads, factor);
  }

  void add_rows(const io::Projection& projection, std::int64_t begin, std::int64_t count,
                double WeightFactors::*factor) {
    const auto [weight, bias] = find_rows(projection);
    pieces_.push_back({weight, projection.in_out ? 1u : 0u, begin, count, factor});
    if (bias != nullptr) pieces_.push_back({bias, 0, begin, count, factor});
  }

  // Weight and bias (nullptr without one) of a projection, of the shape that the map says.
  std::pair<const io::ListedTensor*, const io::ListedTensor*> find_rows(
      const io::Projection& projection) {
    const std::string rows = std::to_string(projection.rows);
    const io::ListedTensor* weight = find(projection.weight);
    const std::size_t axis = projection.in_out ? 1 : 0;
    if (weight->entry.shape.size() != 2 || weight->entry.shape[axis] != projection.rows)
      throw wrong_shape(*weight, projection.in_out ? "[in, " + rows + "]" : "[" + rows + ", in]");
    const io::ListedTensor* bias = nullptr;
    if (!projection.bias.empty()) {
      bias = find(projection.bias);
      if (bias->entry.shape != std::vector{projection.rows})
        throw wrong_shape(*bias, "[" + rows + "]");
    }
    return {weight, bias};
  }

  // The head's own part of a gain: of shape [heads, head_dim], [heads * head_dim] or [heads], axes
  // of extent 1 left out. A gain of [head_dim], or of one number, serves every head.
  void add_gain(const std::string& name, std::int64_t head, std::int64_t heads,
                double WeightFactors::*factor) {
    const io::ListedTensor* gain = find(name);
    const std::int64_t dim = layer_.head_dim();
    std::vector<std::int64_t> shape;
    std::size_t axis = 0;  // the first that is longer than 1
    for (const std::int64_t extent : gain->entry.shape) {
      if (shape.empty() && extent == 1) ++axis;
      if (extent != 1) shape.push_back(extent);
    }
    if (shape.empty()) axis = 0;
    const bool of_one = shape.empty() || shape == std::vector{dim};
    if (gain->entry.shape.empty()) {
      throw wrong_shape(*gain, "at least one axis");
    } else if (of_one) {
      pieces_.push_back({gain, axis, 0, gain->entry.shape[axis], heads == 1 ? factor : kShared});
    } else if (shape == std::vector{heads, dim} || shape == std::vector{heads}) {
      pieces_.push_back({gain, axis, head, 1, factor});
    } else if (shape == std::vector{heads * dim}) {
      pieces_.push_back({gain, axis, head * dim, dim, factor});
    } else {
      throw wrong_shape(*gain, "[" + std::to_string(heads) + ", " + std::to_string(dim) + "] or [" +
                                   std::to_string(heads * dim) + "]");
    }
  }

  const io::ListedTensor* find(const std::string& name) const {
    const io::ListedTensor* tensor = inputs_.checkpoint.find(name);
    if (tensor == nullptr)
      throw failure(inputs_.checkpoint.source() + " has no tensor " + io::in_quotes(name));
    const std::optional<DType> dtype = tensor->dtype;
    if (dtype != DType::f64 && dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16)
      throw failure("tensor " + io::in_quotes(name) + " has dtype " + tensor->entry.dtype +
                    ", expected F64, F32, F16 or BF16");
    return tensor;
  }

  Failure wrong_shape(const io::ListedTensor& tensor, const std::string& expected) const {
    return failure("tensor " + io::in_quotes(tensor.entry.name) + " has shape " +
                   io::shape_text(tensor.entry.shape) + ", expected " + expected + " for " +
                   std::to_string(layer_.q_heads) + " query heads on " +
                   std::to_string(layer_.kv_heads) + " key heads of " +
                   std::to_string(layer_.head_dim()));
  }

  const io::MapLayer& layer_;
  const ClipInputs& inputs_;
  std::vector<Piece> pieces_;
};

double gamma_of(const io::HeadScore& score, const ClipInputs& inputs) {
  if (score.nonfinite_rows > 0)
    throw Failure(inputs.report_path + ": head " + std::to_string(score.head) + " of layer " +
                  io::in_quotes(score.layer) + " has " + std::to_string(score.nonfinite_rows) +
                  " rows with NaN or infinity, so its largest score is not known");
  return clip_gamma(score.max_score, inputs.tau);
}

// The heads of the report by layer; every one a head of the map, unless nothing is to be done.
std::map<std::string, std::map<std::int64_t, const io::HeadScore*>> scores_by_layer(
    const ClipInputs& inputs) {
  std::map<std::string, const io::MapLayer*> mapped;
  for (const io::MapLayer& layer : inputs.layers) mapped[layer.label] = &layer;
  std::map<std::string, std::map<std::int64_t, const io::HeadScore*>> scores;
  for (const io::HeadScore& score : inputs.heads) {
    scores[score.layer][score.head] = &score;
    if (mapped.contains(score.layer)) continue;
    const double gamma = gamma_of(score, inputs);
    if (gamma < 1)
      throw Failure(inputs.map_path + ": has no layer " + io::in_quotes(score.layer) +
                    ", of which " + inputs.report_path + " wants head " +
                    std::to_string(score.head) + " clipped (γ = " + number(gamma) + ")");
  }
  for (const auto& [label, heads] : scores) {
    const auto layer = mapped.find(label);
    if (layer == mapped.end()) continue;
    const auto count = static_cast<std::int64_t>(heads.size());
    if (count != layer->second->q_heads || heads.rbegin()->first != count - 1)
      throw Failure(inputs.map_path + ": layer " + io::in_quotes(label) + " has " +
                    std::to_string(layer->second->q_heads) + " query heads, in " +
                    inputs.report_path + " it has " +
                    std::to_string(std::max(count, heads.rbegin()->first + 1)));
  }
  return scores;
}

// Enters the piece's factor where it is smaller than what stands there.
void enter(const Piece& piece, double factor, const ClipInputs& inputs, FactorTable* table) {
  const std::vector<std::int64_t>& shape = piece.tensor->entry.shape;
  auto [found, is_new] = table->try_emplace(piece.tensor, Factors{piece.axis, {}});
  Factors& factors = found->second;
  if (is_new) factors.values.assign(static_cast<std::size_t>(shape[piece.axis]), 1);
  if (factors.axis != piece.axis)
    throw Failure(inputs.map_path + ": layers disagree on the layout of tensor " +
                  io::in_quotes(piece.tensor->entry.name));
  const auto begin = factors.values.begin() + piece.begin;
  std::for_each(begin, begin + piece.count, [&](double& f) { f = std::min(f, factor); });
}

void enter_head(const HeadPieces& head, const io::MapLayer& layer, const ClipInputs& inputs,
                FactorTable* table) {
  for (const Piece& piece : head.pieces) {
    if (piece.factor == kShared && head.clipped)
      throw Failure(inputs.map_path + ": layer " + io::in_quotes(layer.label) + ": the gain " +
                    io::in_quotes(piece.tensor->entry.name) + " is shared by its heads, so head " +
                    std::to_string(head.score->head) +
                    " (γ = " + number(clip_gamma(head.score->max_score, inputs.tau)) +
                    ") cannot be clipped alone");
    if (piece.factor == kShared) continue;
    const double factor = head.factors.*piece.factor;
    if (factor != 1) enter(piece, factor, inputs, table);
  }
}

// What happens to one head, empty when nothing does.
std::string describe(const HeadPieces& head, const io::MapLayer& layer, std::int64_t index,
                     const ClipInputs& inputs, const FactorTable& table) {
  std::string lines;
  for (const Piece& piece : head.pieces) {
    const auto found = table.find(piece.tensor);
    if (piece.factor == kShared || found == table.end()) continue;
    const double factor = found->second.values[static_cast<std::size_t>(piece.begin)];
    if (factor == 1) continue;
    const std::vector<std::int64_t>& shape = piece.tensor->entry.shape;
    lines += "  " + io::in_quotes(piece.tensor->entry.name) +
             (shape.size() == 2 && piece.axis == 1 ? " columns " : " rows ") +
             std::to_string(piece.begin) + " to " + std::to_string(piece.begin + piece.count - 1) +
             " × " + number(factor) + '\n';
  }
  if (lines.empty()) return {};
  std::string title = io::on_one_line(layer.label) + " H" + std::to_string(index) + "  ";
  if (head.score == nullptr)
    title += "not in the report";
  else
    title += "largest score " + number(head.score->max_score) +
             ", γ = " + number(clip_gamma(head.score->max_score, inputs.tau));
  if (!head.clipped) title += ", changed through weights that it shares";
  return title + '\n' + lines;
}

}  // namespace

ClipPlan plan_clip(const ClipInputs& inputs) {
  const auto scores = scores_by_layer(inputs);
  FactorTable table;
  std::vector<std::vector<HeadPieces>> all;
  std::int64_t clipped = 0;
  for (const io::MapLayer& layer : inputs.layers) {
    LayerPieces pieces(layer, inputs);
    std::vector<HeadPieces>& heads = all.emplace_back();
    const auto measured = scores.find(layer.label);
    for (std::int64_t h = 0; h < layer.q_heads; ++h) {
      HeadPieces head{
          measured == scores.end() ? nullptr : measured->second.at(h), pieces.of(h), {}};
      if (head.score != nullptr) {
        const double gamma = gamma_of(*head.score, inputs);
        head.factors = split_factor(gamma, rule_of(layer));
        head.clipped = gamma < 1;
        clipped += head.clipped;
      }
      enter_head(head, layer, inputs, &table);
      heads.push_back(std::move(head));
    }
  }

  ClipPlan plan;
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t h = 0; h < all[i].size(); ++h)
      plan.text +=
          describe(all[i][h], inputs.layers[i], static_cast<std::int64_t>(h), inputs, table);
  plan.text += std::to_string(clipped) + " of " + std::to_string(inputs.heads.size()) +
               " heads clipped at τ = " + number(inputs.tau) +
               (clipped == 0 ? ": the copy is byte for byte the same\n" : "\n");
  for (auto& [tensor, factors] : table)
    plan.scalings.push_back({tensor, factors.axis, std::move(factors.values)});
  return plan;
}

}  // namespace poise::cli
