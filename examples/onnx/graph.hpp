// OnnxGraph: a graph of ONNX operators that is built value by value, and its file. Needs libonnx.
#pragma once

#include <dhp/core/config.hpp>

#include <dhp/core/open_file.hpp>

#include <onnx/checker.h>
#include <onnx/onnx_pb.h>
#include <onnx/shape_inference/implementation.h>

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace examples {

class OnnxGraph {
 public:
  /// Limit for weights: a protocol buffer holds 2 GiB, and the graph itself is small.
  static constexpr std::size_t max_bytes = (std::size_t{2} << 30) - (std::size_t{16} << 20);
  static constexpr int opset = 17;  ///< the first with LayerNormalization
  /// The name of a tensor of the graph.
  using Value = std::string;
  using Attribute = std::variant<std::int64_t, float, std::vector<std::int64_t>>;
  /// A number, or the name of an extent that is only known when the graph runs.
  using Extent = std::variant<std::int64_t, std::string>;
  using Extents = std::vector<Extent>;

  explicit OnnxGraph(const std::string& name) {
    model_.set_ir_version(8);
    model_.set_producer_name("dhp");
    model_.set_producer_version(
        dhp::concat(dhp::version_major, ".", dhp::version_minor, ".", dhp::version_patch));
    auto& operators = *model_.add_opset_import();
    operators.set_domain("");
    operators.set_version(opset);
    graph().set_name(name);
  }

  Value float_input(const std::string& name, const Extents& extents) {
    describe(*graph().add_input(), name, onnx::TensorProto::FLOAT, extents);
    return name;
  }
  Value id_input(const std::string& name, const Extents& extents) {
    describe(*graph().add_input(), name, onnx::TensorProto::INT64, extents);
    return name;
  }
  /// Makes a value an output of the graph, under this name.
  void output(const Value& value, const std::string& name, const Extents& extents) {
    auto& node = *graph().add_node();
    node.set_op_type("Identity");
    node.set_name(name);
    node.add_input(value);
    node.add_output(name);
    describe(*graph().add_output(), name, onnx::TensorProto::FLOAT, extents);
  }

  /// Applies an operator to values. Nodes are named by operator and number.
  Value node(const std::string& op, const std::vector<Value>& inputs,
             const std::map<std::string, Attribute>& attributes = {}) {
    auto& node = *graph().add_node();
    node.set_op_type(op);
    node.set_name(dhp::concat(op, "_", numbers_[op]++));
    for (const auto& input : inputs) node.add_input(input);
    node.add_output(node.name() + "_output");
    for (const auto& [name, value] : attributes) set(*node.add_attribute(), name, value);
    return node.output(0);
  }

  /// Adds a tensor of weights.
  Value floats(const std::string& name, const std::vector<std::int64_t>& shape,
               std::span<const float> values) {
    bytes_ += values.size_bytes();
    return constant(name, onnx::TensorProto::FLOAT, shape, std::as_bytes(values));
  }
  Value scalar(float value) { return floats(fresh("constant"), {}, std::span(&value, 1)); }
  /// Adds a scalar int64, such as an index for Gather.
  Value id(std::int64_t value) {
    return constant(fresh("constant"), onnx::TensorProto::INT64, {},
                    std::as_bytes(std::span(&value, 1)));
  }
  Value integers(const std::vector<std::int64_t>& values) {
    return constant(fresh("constant"), onnx::TensorProto::INT64, {std::ssize(values)},
                    std::as_bytes(std::span(values)));
  }
  [[nodiscard]] bool has(const std::string& constant) const {
    return constants_.contains(constant);
  }

  /// Adds an entry to the file's metadata.
  void note(const std::string& key, const std::string& value) {
    auto& entry = *model_.add_metadata_props();
    entry.set_key(key);
    entry.set_value(value);
  }

  /// Replaces the file, if ONNX's checker and shape inference find no error.
  void write(const std::string& path) {
    try {
      onnx::checker::check_model(model_);
      const onnx::ShapeInferenceOptions strict{true, 1, true};
      onnx::shape_inference::InferShapes(model_, onnx::OpSchemaRegistry::Instance(), strict);
    } catch (const std::exception& error) {
      dhp::fail("", path, " was not written, because ONNX's checker refuses it: ", error.what());
    }
    std::string text;
    dhp::check(model_.SerializeToString(&text), path, " was not written: it cannot be serialized");
    dhp::replace_file(path, text);
  }
  [[nodiscard]] std::size_t weight_bytes() const { return bytes_; }
  [[nodiscard]] int nodes() const { return model_.graph().node_size(); }

 private:
  [[nodiscard]] onnx::GraphProto& graph() { return *model_.mutable_graph(); }
  [[nodiscard]] std::string fresh(const std::string& name) {
    return dhp::concat(name, "_", numbers_[name]++);
  }

  Value constant(const std::string& name, onnx::TensorProto::DataType type,
                 const std::vector<std::int64_t>& shape, std::span<const std::byte> values) {
    dhp::check(constants_.insert(name).second, "two tensors of the graph have the name ", name);
    auto& tensor = *graph().add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(type);
    for (const auto extent : shape) tensor.add_dims(extent);
    tensor.set_raw_data(values.data(), values.size());
    return name;
  }
  static void describe(onnx::ValueInfoProto& info, const std::string& name,
                       onnx::TensorProto::DataType type, const Extents& extents) {
    info.set_name(name);
    auto& tensor = *info.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(type);
    auto& shape = *tensor.mutable_shape();
    for (const auto& extent : extents) {
      if (const auto* const number = std::get_if<std::int64_t>(&extent))
        shape.add_dim()->set_dim_value(*number);
      else shape.add_dim()->set_dim_param(std::get<std::string>(extent));
    }
  }
  static void set(onnx::AttributeProto& attribute, const std::string& name,
                  const Attribute& value) {
    attribute.set_name(name);
    if (const auto* const integer = std::get_if<std::int64_t>(&value)) {
      attribute.set_type(onnx::AttributeProto::INT);
      attribute.set_i(*integer);
    } else if (const auto* const real = std::get_if<float>(&value)) {
      attribute.set_type(onnx::AttributeProto::FLOAT);
      attribute.set_f(*real);
    } else {
      attribute.set_type(onnx::AttributeProto::INTS);
      for (const auto item : std::get<std::vector<std::int64_t>>(value)) attribute.add_ints(item);
    }
  }

  onnx::ModelProto model_;
  std::map<std::string, int> numbers_;
  std::set<std::string> constants_;
  std::size_t bytes_ = 0;
};

}  // namespace examples
