// Labelled arrays of floating point, for inputs that are no photographs: fields of a simulation, spectra,
// features. From .npy: samples f4 or f8 [N, ...], labels an integer type [N].
#pragma once

#include <dhp/data/collate.hpp>
#include <dhp/data/dataset.hpp>
#include <dhp/data/image.hpp>
#include <dhp/data/npy.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

struct LabelledField {
  Shape shape;  ///< of one sample
  std::vector<double> values;
  std::int32_t label = 0;
};

/// All fields in memory, shared by the copies of the dataset.
class FieldArray {
 public:
  using Sample = LabelledField;

  FieldArray(NpyArray fields, std::vector<std::int32_t> labels, int classes,
             const std::string& fields_name, const std::string& labels_name) {
    check(is_floating(fields.dtype), "", fields_name, ": fields of ", fields.dtype,
          "; f4 or f8 would be right");
    check(fields.shape.rank() >= 2, "", fields_name, ": fields of shape ", fields.shape,
          "; [N, ...] would be right");
    check_labels(labels, fields.shape[0], classes, fields_name, labels_name);
    for (int dim = 1; dim < fields.shape.rank(); ++dim) shape_.push_back(fields.shape[dim]);
    data_ = std::make_shared<const Data>(Data{std::move(fields), std::move(labels)});
  }

  [[nodiscard]] std::int64_t size() const { return data_->fields.shape[0]; }
  /// Of one sample.
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] Sample get(std::int64_t index) const {
    check_sample_index(index, size());
    Sample made{shape_, {}, data_->labels[static_cast<std::size_t>(index)]};
    const auto append = [&]<class T>(Tag<T>) {
      const auto count = static_cast<std::size_t>(shape_.count());
      std::vector<T> values(count);
      if (count > 0)
        std::memcpy(
            values.data(),
            data_->fields.bytes.data() + static_cast<std::size_t>(index) * count * sizeof(T),
            count * sizeof(T));
      made.values.assign(values.begin(), values.end());
    };
    if (data_->fields.dtype == DType::f64) append(Tag<double>{});
    if (data_->fields.dtype == DType::f32) append(Tag<float>{});
    return made;
  }

 private:
  struct Data {
    NpyArray fields;
    std::vector<std::int32_t> labels;
  };
  Shape shape_;
  std::shared_ptr<const Data> data_;
};

[[nodiscard]] inline FieldArray load_npy_fields(const std::string& fields,
                                                const std::string& labels, int classes) {
  return FieldArray(load_npy(fields), load_npy_labels(labels, classes), classes, fields, labels);
}

/// Micro-batches of fields, all of one shape: input [N, ...] in `dtype`, side input "labels" [N].
template <Dataset D>
  requires std::same_as<typename D::Sample, LabelledField>
class FieldBatcher {
 public:
  FieldBatcher(D data, DType dtype) : data_(std::move(data)), dtype_(dtype) {
    check(is_floating(dtype), "fields are fed as a floating-point type, not as ", dtype);
  }
  [[nodiscard]] std::int64_t size() const { return data_.size(); }
  [[nodiscard]] HostBatch collate(std::span<const std::int64_t> indices, std::int64_t) const {
    const auto n = static_cast<std::int64_t>(indices.size());
    HostBatch batch;
    HostArray labels(DType::i32, {n});
    Shape shape;
    for (std::size_t at = 0; at < indices.size(); ++at)
      naming_sample(indices[at], [&] {
        const LabelledField field = data_.get(indices[at]);
        if (at == 0) {
          shape.push_back(n);
          for (int dim = 0; dim < field.shape.rank(); ++dim) shape.push_back(field.shape[dim]);
          batch.input = HostArray(dtype_, shape);
        }
        check(field.shape.count() * n == shape.count(), "has the shape ", field.shape,
              " in a batch of shape ", shape);
        visit_floating(dtype_, [&]<class T>(Tag<T>) {
          auto* to = batch.input.template values<T>().data() + at * field.values.size();
          for (const double value : field.values) *to++ = static_cast<T>(value);
        });
        labels.template values<std::int32_t>()[at] = field.label;
      });
    batch.side.emplace_back("labels", std::move(labels));
    batch.counts.emplace_back("samples", n);
    return batch;
  }

 private:
  D data_;
  DType dtype_;
};

}  // namespace dhp
