// What the processes of one client tell each other while it starts and compiles: a plugin puts and gets, we carry.
#pragma once

#include <pjrt_c_api.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace tpjrt::pjrt {

// A table that all the processes see. Called by a plugin from any thread, from several at once. What a call throws is the
// plugin's error: of an Error its code and words.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual void put(const std::string& key, const std::string& value) = 0;
  // Nothing where no process has put it yet.
  virtual std::optional<std::string> try_get(const std::string& key) = 0;
  // Waits until a process has put it. Throws Error (kDeadlineExceeded) where none has in time.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
};

// One of the processes that have a client together, with one device each. Those of a host have numbers in a row.
struct Node {
  int id = 0, count = 1;                 // this one, and how many there are
  int first_on_host = 0, on_host = 1;    // those of this host
  int64_t visible_device = 0;            // the platform's number of the device that this one uses
  std::shared_ptr<KeyValueStore> store;  // used as long as the client is there

  int number_on_host() const { return id - first_on_host; }
};

// The plugin's callbacks are the store's functions. The store has to outlive the client.
void give_callbacks(PJRT_Client_Create_Args& args, KeyValueStore& store);

}  // namespace tpjrt::pjrt
