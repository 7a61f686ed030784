// The plots of `cachectl quality`: plain SVG, no script, readable on white.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tools/cachectl_quality.h"

namespace kv::cachectl {
namespace {

constexpr const char* kColours[] = {"#1b6ca8", "#c8452f", "#2e8b57", "#8e5bb5", "#b07d12",
                                    "#4a4a4a", "#d16ba5", "#3aa6a6", "#7a9a2e", "#a0522d"};
constexpr double kLeast = 1e-6;  // smaller divergences are drawn here

// One panel: x linear, y by powers of ten.
struct Panel {
  double left, top, width, height;
  double x_from, x_to;
  int y_from, y_to;  // exponents of ten

  double x(double value) const { return left + width * (value - x_from) / (x_to - x_from); }
  double y(double value) const {
    const double power = std::log10(std::max(value, kLeast));
    return top + height * (y_to - power) / (y_to - y_from);
  }
};

template <typename... Values>
std::string format(const char* text, Values... values) {
  char out[512];
  std::snprintf(out, sizeof(out), text, values...);
  return out;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : printable(text)) {
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return out;
}

std::string words(double x, double y, const char* anchor, const std::string& text) {
  return format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor) + escaped(text) +
         "</text>\n";
}

std::string axes(const Panel& p, double x_step, const std::string& x_title,
                 const std::string& title) {
  std::string out = format(
      "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" "
      "stroke=\"#444\"/>\n",
      p.left, p.top, p.width, p.height);
  for (int power = p.y_from; power <= p.y_to; ++power) {
    const double y = p.y(std::pow(10.0, power));
    out += format("<path d=\"M%.1f %.1fh%.1f\" stroke=\"#ddd\"/>\n", p.left, y, p.width);
    out += words(p.left - 6, y + 4, "end", "1e" + std::to_string(power));
  }
  for (double x = p.x_from; x <= p.x_to + 1e-9; x += x_step) {
    out += words(p.x(x), p.top + p.height + 16, "middle", format("%g", x));
  }
  out += words(p.left + p.width / 2, p.top + p.height + 34, "middle", x_title);
  return out + words(p.left + p.width / 2, p.top - 10, "middle", title);
}

int floor_power(double value) {
  return static_cast<int>(std::floor(std::log10(std::max(value, kLeast))));
}

std::string divergence_panel(std::span<const SettingResult> results) {
  double largest = kLeast, smallest = 1;
  for (const SettingResult& r : results) {
    for (const ProtocolResult* one : {&r.hit, &r.whole}) {
      if (one->texts == 0) continue;
      largest = std::max(largest, one->mean_kld());
      smallest = std::min(smallest, one->mean_kld());
    }
  }
  const Panel p{60, 40, 420, 380, 0, 1, floor_power(smallest), floor_power(largest) + 1};
  std::string out = axes(p, 0.2, "bytes / fp16", "divergence from the exact cache (mean KLD)");
  for (size_t i = 0; i < results.size(); ++i) {
    const SettingResult& r = results[i];
    const char* colour = kColours[i % std::size(kColours)];
    const double x = p.x(std::min(r.ratio, 1.0));
    if (r.hit.texts > 0) {
      out += format("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n", x,
                    p.y(r.hit.mean_kld()), colour);
    }
    const ProtocolResult& named = r.hit.texts > 0 ? r.hit : r.whole;
    out += words(x + 7, p.y(named.mean_kld()) + 4, "start", r.name);
    if (r.whole.texts == 0) continue;
    out += format("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"white\" stroke=\"%s\"/>\n", x,
                  p.y(r.whole.mean_kld()), colour);
  }
  return out + words(70, 60, "start", "full: hit, hollow: whole");
}

std::string layer_panel(std::span<const SettingResult> results) {
  double largest = kLeast, smallest = 1;
  for (const SettingResult& r : results) {
    for (const AttentionError& e : r.layers) {
      largest = std::max(largest, e.both);
      smallest = std::min(smallest, e.both);
    }
  }
  const double last = static_cast<double>(results[0].layers.size()) - 1;
  const Panel p{
      560, 40, 420, 380, 0, std::max(last, 1.0), floor_power(smallest), floor_power(largest) + 1};
  std::string out =
      axes(p, std::max(1.0, std::ceil(last / 10)), "layer", "relative error of attention outputs");
  for (size_t i = 0; i < results.size(); ++i) {
    const char* colour = kColours[i % std::size(kColours)];
    if (results[i].layers.empty()) continue;
    std::string path;
    for (size_t l = 0; l < results[i].layers.size(); ++l) {
      path += format("%s%.1f %.1f", l == 0 ? "M" : "L", p.x(static_cast<double>(l)),
                     p.y(results[i].layers[l].both));
    }
    out += format("<path fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" d=\"", colour) + path +
           "\"/>\n";
    out += format("<text x=\"990\" y=\"%.1f\" fill=\"%s\">", 52 + 18 * static_cast<double>(i),
                  colour) +
           escaped(results[i].name) + "</text>\n";
  }
  return out;
}

}  // namespace

std::string quality_svg(const std::string& model, std::span<const SettingResult> results) {
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1120 470\" "
         "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"1120\" height=\"470\" "
         "fill=\"white\"/>\n" +
         words(560, 18, "middle", model) + divergence_panel(results) + layer_panel(results) +
         "</svg>\n";
}

}  // namespace kv::cachectl
