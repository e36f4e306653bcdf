// elastic_store: the key-value store through which members of an elastic job agree.
#pragma once

#include <dhp/comm/rendezvous/key_value_store.hpp>

#include <memory>
#include <string>

namespace examples {

/// Opens a store in etcd; endpoints are separated by commas. Throws Error if this build has no etcd.
[[nodiscard]] std::shared_ptr<dhp::KeyValueStore> elastic_store(
    const std::string& endpoints, const dhp::RendezvousOptions& member);

}  // namespace examples
