// elastic_store: where the members of an elastic job agree.
#pragma once

#include <dhp/comm/rendezvous/key_value_store.hpp>

#include <memory>
#include <string>

namespace examples {

/// A store in etcd; endpoints with commas between them. Throws Error where this build has none.
[[nodiscard]] std::shared_ptr<dhp::KeyValueStore> elastic_store(
    const std::string& endpoints, const dhp::RendezvousOptions& member);

}  // namespace examples
