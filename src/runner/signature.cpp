// Parses JSON into records.
#include "runner/signature.h"

#include <utility>

#include "file/tensors.h"

namespace tpjrt::runner {
namespace {

using file::Json;

Described described(const Json& json) {
  Described form;
  form.name = json.at("name").string("a name");
  const std::string& dtype = json.at("dtype").string("a dtype");
  const auto known = file::dtype_named(dtype);
  if (!known) throw file::Error(form.name + " has dtype " + dtype + ", which this version doesn't know");
  form.dtype = *known;
  for (const Json& dim : json.at("shape").list("a shape")) form.shape.push_back(dim.integer("a size"));
  if (!file::size_of(form.dtype, form.shape)) throw file::Error(form.name + " has a shape that is none");
  if (const Json* updated = json.find("updated")) form.updated = updated->boolean("'updated'");
  return form;
}

std::vector<Described> all_described(const Json& json) {
  std::vector<Described> forms;
  for (const Json& item : json.list("arguments and results")) forms.push_back(described(item));
  return forms;
}

size_t index_below(const Json& json, size_t count, const char* what) {
  const int64_t index = json.integer(what);
  if (index < 0 || static_cast<size_t>(index) >= count) throw file::Error(std::string(what) + " is out of range");
  return static_cast<size_t>(index);
}

pjrt::Options options_in(const Json& json) {
  pjrt::Options options;
  for (const auto& [name, value] : json.object("options")) {
    if (const auto* text = std::get_if<std::string>(&value.value())) {
      options[name] = *text;
    } else if (const auto* flag = std::get_if<bool>(&value.value())) {
      options[name] = *flag;
    } else if (const auto* integer = std::get_if<int64_t>(&value.value())) {
      options[name] = *integer;
    } else if (const auto* real = std::get_if<double>(&value.value())) {
      options[name] = *real;
    } else {
      throw file::Error("option " + name + " is neither text nor a number");
    }
  }
  return options;
}

class Reader {
 public:
  Reader(const file::Archive& archive, const Json& json) : archive_(archive), json_(json) {}

  Signature read() {
    for (const auto& [name, version] : json_.at("made_by").object("'made_by'")) {
      out_.made_by[name] = version.string("a version");
    }
    if (const Json* weights = json_.find("weights"); weights && !weights->is_null()) {
      out_.separate_weights = weights->at("file").string("the weights' file");
      out_.separate_crc = static_cast<uint32_t>(weights->at("crc32").integer("the weights' checksum"));
      if (out_.separate_weights.find('/') != std::string::npos || out_.separate_weights.starts_with("..")) {
        throw file::Error("the weights' file is named by a path, which may lead anywhere");
      }
    }
    for (const Json& item : json_.at("state").list("'state'")) add_state(item);
    for (const Json& item : json_.at("kernels").list("'kernels'")) {
      out_.kernels.push_back({item.at("target").string("a target"), item.at("symbol").string("a symbol"),
                              item.at("library").string("a library"), item.at("path").string("a path")});
      if (out_.kernels.back().library.find('/') != std::string::npos) {
        throw file::Error("a kernel's library is named by a path, which may lead anywhere");
      }
    }
    for (const Json& item : json_.at("entries").list("'entries'")) {
      EntryForm entry{item.at("name").string("an entry's name"), {}};
      for (const Json& variant : item.at("variants").list("'variants'"))
        entry.variants.push_back(read_variant(variant));
      if (entry.variants.empty()) throw file::Error("entry " + entry.name + " has no program");
      out_.entries.push_back(std::move(entry));
    }
    if (out_.entries.empty()) throw file::Error("there is no entry");
    return std::move(out_);
  }

 private:
  void add_state(const Json& json) {
    StateForm state{described(json), {}};
    if (const Json* aliases = json.find("aliases")) {
      for (const Json& alias : aliases->list("'aliases'")) state.aliases.push_back(alias.string("an alias"));
    }
    if (const Json* frozen = json.find("frozen")) state.is_frozen = frozen->boolean("'frozen'");
    if (state.is_frozen && state.described.updated) throw file::Error("frozen state is updated");
    const size_t index = out_.state.size();
    bool is_new = out_.state_index.emplace(state.described.name, index).second;
    for (const std::string& alias : state.aliases) is_new &= out_.state_index.emplace(alias, index).second;
    if (!is_new) throw file::Error("there are two pieces of state named " + state.described.name);
    out_.state.push_back(std::move(state));
  }

  size_t state_named(const Json& json) const {
    const std::string& name = json.string("a piece of state");
    const auto found = out_.state_index.find(name);
    if (found == out_.state_index.end()) throw file::Error("there is no state named " + name);
    return found->second;
  }

  Place place(const Json& json, const VariantSpec& variant, bool is_output) const {
    using Kind = Place::Kind;
    const size_t arguments = variant.described.arguments.size();
    if (const Json* index = json.find("argument")) return {Kind::kArgument, index_below(*index, arguments, "argument")};
    if (const Json* name = json.find("state")) return {Kind::kState, state_named(*name)};
    if (!is_output) throw file::Error("a parameter is neither an argument nor state");
    if (const Json* index = json.find("result")) {
      return {Kind::kResult, index_below(*index, variant.described.results.size(), "result")};
    }
    if (json.find("requirements")) return {Kind::kAssertions, 0};
    throw file::Error("an output is neither a result nor state");
  }

  VariantSpec read_variant(const Json& json) {
    VariantSpec variant;
    for (const auto& [name, size] : json.at("sizes").object("'sizes'")) {
      variant.described.sizes[name] = size.integer("a size");
    }
    variant.described.arguments = all_described(json.at("arguments"));
    variant.described.results = all_described(json.at("results"));
    auto names = std::make_shared<std::vector<std::string>>();
    for (const Described& result : variant.described.results) names->push_back(result.name);
    for (const Json& item : json.at("parameters").list("'parameters'")) {
      variant.parameters.push_back(place(item, variant, false));
    }
    std::vector<size_t> given(variant.described.results.size());
    for (const Json& item : json.at("outputs").list("'outputs'")) {
      variant.outputs.push_back(place(item, variant, true));
      const Place& made = variant.outputs.back();
      if (made.kind == Place::Kind::kResult) ++given[made.index];
      if (made.kind == Place::Kind::kArgument) names->push_back(variant.described.arguments[made.index].name);
    }
    for (const size_t count : given) {
      if (count != 1) throw file::Error("a result is not given once");
    }
    variant.result_names = std::move(names);
    for (const Json& item : json.at("requirements").list("'requirements'")) {
      variant.required.push_back({item.at("low").integer("a bound"), item.at("high").integer("a bound"),
                                  item.at("message").string("a message"), item.at("op").string("an op")});
    }
    for (const auto& [platform, item] : json.at("programs").object("'programs'")) {
      Text text{item.at("file").string("a program's file"), {}};
      if (!archive_.has(text.member)) throw file::Error("there is no member " + text.member);
      text.options.overrides = options_in(item.at("options"));
      for (const Json& hint : item.at("hints").list("'hints'")) text.options.hints.insert(hint.string("a hint"));
      variant.texts.emplace(platform, std::move(text));
    }
    if (!variant.texts.contains("any")) throw file::Error("a program is missing");
    for (const auto& [op, count] : json.at("ops").object("'ops'")) variant.ops[op] = count.integer("a count");
    for (const Json& item : json.at("composites").list("'composites'")) {
      variant.composites.push_back(item.string("a composite"));
    }
    return variant;
  }

  const file::Archive& archive_;
  const Json& json_;
  Signature out_;
};

}  // namespace

Signature read_signature(const file::Archive& archive) {
  try {
    const std::string_view text = archive.read_text("program.json");
    const Json json = Json::parse(text);
    const int64_t format = json.at("format").integer("'format'");
    if (format > kFormat) {
      throw file::Error("'" + archive.path() + "' has format " + std::to_string(format) +
                        ", and this torch_pjrt reads " + std::to_string(kFormat) +
                        ": update torch_pjrt here, or export with an older one");
    }
    if (format < 1) throw file::Error("its format is none");
    return Reader(archive, json).read();
  } catch (const file::Error& error) {
    if (std::string_view(error.what()).starts_with("'" + archive.path() + "'")) throw;
    throw file::Error("'" + archive.path() + "' has a damaged signature: " + error.what() + ". Export it anew");
  }
}

}  // namespace tpjrt::runner
