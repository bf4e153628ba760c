// One pass over the text with a stack of open elements. In: the page as text. Out: the first
// problem, or nothing. Knows only what the report writes: no comments, no CDATA, and of the tags
// that HTML lets one omit only the ends of table rows and cells. What it promises: markup.h.
#include "support/markup.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <vector>

namespace poise::test {
namespace {

const std::set<std::string, std::less<>> kReferences = {"amp", "lt", "gt", "quot", "nbsp", "#39"};

class Checker {
 public:
  explicit Checker(std::string_view html) : rest_(html) {}

  std::string run() {
    while (problem_.empty() && !rest_.empty()) {
      if (rest_.starts_with("<!DOCTYPE html>")) {
        rest_.remove_prefix(15);
      } else if (rest_.front() == '<' && (!raw() || rest_.starts_with("</" + open_.back()))) {
        tag();
      } else {
        text();
      }
    }
    if (problem_.empty() && !open_.empty()) problem_ = "<" + open_.back() + "> is never closed";
    for (const std::string& target : targets_) {
      if (problem_.empty() && !ids_.contains(target)) problem_ = "nothing has the id " + target;
    }
    return problem_;
  }

 private:
  // In elements whose content is no markup.
  bool raw() const {
    return !open_.empty() && (open_.back() == "style" || open_.back() == "script");
  }

  void text() {
    const std::string_view run = raw() ? take_until("</" + open_.back()) : take_until("<");
    if (open_.empty() && run.find_first_not_of(" \n") != std::string_view::npos) {
      problem_ = "text outside the document";
    }
    if (!raw()) check_references(run);
  }

  void tag() {
    rest_.remove_prefix(1);
    const bool closing = rest_.starts_with('/');
    if (closing) rest_.remove_prefix(1);
    const std::string name = take_name();
    if (name.empty()) {
      problem_ = "a '<' that begins no tag, near '" + std::string(rest_.substr(0, 40)) + "'";
      return;
    }
    if (closing) {
      if (name == "tbody" || name == "thead") end_row();
      if (open_.empty() || open_.back() != name) {
        problem_ =
            "</" + name + "> closes " + (open_.empty() ? "nothing" : "<" + open_.back() + ">");
        return;
      }
      open_.pop_back();
      expect(">");
      return;
    }
    if (name == "td" || name == "th") end_cell();
    if (name == "tr") end_row();
    attributes(name);
    if (!problem_.empty()) return;
    if (rest_.starts_with("/>")) {
      rest_.remove_prefix(2);
    } else if (expect(">")) {
      open_.push_back(name);
    }
  }

  void end_cell() {
    if (!open_.empty() && (open_.back() == "td" || open_.back() == "th")) open_.pop_back();
  }
  void end_row() {
    end_cell();
    if (!open_.empty() && open_.back() == "tr") open_.pop_back();
  }

  void attributes(const std::string& tag) {
    std::set<std::string> seen;
    while (problem_.empty() && rest_.starts_with(' ')) {
      rest_.remove_prefix(1);
      const std::string name = take_name();
      if (!seen.insert(name).second) problem_ = name + " twice in <" + tag + ">";
      if (!expect("=\"")) return;
      const std::string value(take_until("\""));
      rest_.remove_prefix(std::min<std::size_t>(1, rest_.size()));
      if (value.find('<') != std::string::npos) problem_ = "'<' in attribute " + name;
      check_references(value);
      if (name == "id" && !ids_.insert(value).second) problem_ = "id " + value + " twice";
      if (name == "href" && value.starts_with('#')) targets_.insert(value.substr(1));
    }
  }

  void check_references(std::string_view run) {
    for (std::size_t at = run.find('&'); at != std::string_view::npos; at = run.find('&', at + 1)) {
      const std::size_t end = run.find(';', at);
      if (end == std::string_view::npos ||
          !kReferences.contains(run.substr(at + 1, end - at - 1))) {
        problem_ = "unknown reference " + std::string(run.substr(at, 10));
      }
    }
  }

  std::string take_name() {
    std::size_t length = 0;
    while (length < rest_.size() &&
           (std::isalnum(static_cast<unsigned char>(rest_[length])) != 0 || rest_[length] == '-')) {
      ++length;
    }
    const std::string name(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return name;
  }

  std::string_view take_until(std::string_view stop) {
    const std::string_view run = rest_.substr(0, rest_.find(stop));
    rest_.remove_prefix(run.size());
    return run;
  }

  bool expect(std::string_view what) {
    if (!rest_.starts_with(what)) {
      problem_ =
          "expected " + std::string(what) + " near '" + std::string(rest_.substr(0, 40)) + "'";
      return false;
    }
    rest_.remove_prefix(what.size());
    return true;
  }

  std::string_view rest_;
  std::string problem_;
  std::vector<std::string> open_;
  std::set<std::string> ids_, targets_;
};

}  // namespace

std::string markup_problem(std::string_view html) { return Checker(html).run(); }

}  // namespace poise::test
