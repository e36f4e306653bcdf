#include "elastic_store.hpp"

#if defined(DHP_HAS_ETCD)
#include <dhp/comm/rendezvous/etcd_store.hpp>
#endif

namespace examples {

#if defined(DHP_HAS_ETCD)
std::shared_ptr<dhp::KeyValueStore> elastic_store(const std::string& endpoints,
                                                  const dhp::RendezvousOptions& member) {
  return std::make_shared<dhp::EtcdStore>(dhp::etcd_options(endpoints), member);
}
#else
std::shared_ptr<dhp::KeyValueStore> elastic_store(const std::string&,
                                                  const dhp::RendezvousOptions&) {
  dhp::fail("--store needs a build with libcurl (in Debian libcurl4-openssl-dev)");
}
#endif

}  // namespace examples
