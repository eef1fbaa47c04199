// The exchange between the processes of one client while it starts and compiles: plugins put and get, the store
// transports.
#pragma once

#include <pjrt_c_api.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace tpjrt::pjrt {

// A table that all processes share. Plugins call it from any thread, concurrently. An exception becomes the plugin's
// error; an Error keeps its code and message.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  virtual void put(const std::string& key, const std::string& value) = 0;
  // Returns the value, or nothing if no process has put it yet.
  virtual std::optional<std::string> try_get(const std::string& key) = 0;
  // Waits until a process has put the value. Throws Error (kDeadlineExceeded) on timeout.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
};

// One process of a client that several share, with one device each. Processes of one host have consecutive numbers.
struct Node {
  int id = 0, count = 1;                 // this process, and the number of processes
  int first_on_host = 0, on_host = 1;    // the processes of this host
  int64_t visible_device = 0;            // the platform's number of this process's device
  std::shared_ptr<KeyValueStore> store;  // used while the client exists

  int number_on_host() const { return id - first_on_host; }
};

// Sets the plugin's callbacks to the store's functions. The store must outlive the client.
void give_callbacks(PJRT_Client_Create_Args& args, KeyValueStore& store);

}  // namespace tpjrt::pjrt
