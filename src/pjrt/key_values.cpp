// Implements the C API's key-value callbacks with a store.
#include "pjrt/key_values.h"

#include <cstring>
#include <exception>
#include <string>

#include "pjrt/api/api.h"

namespace tpjrt::pjrt {

namespace {

// Runs one call of a plugin, and returns exceptions as PJRT errors: no exception may leave a callback.
template <class Args, class Work>
PJRT_Error* answered(Args* args, const Work& work) {
  const auto failed = [&](ErrorCode code, const std::string& message) {
    return (*args->callback_error)(static_cast<PJRT_Error_Code>(code), message.data(), message.size());
  };
  try {
    work(*static_cast<KeyValueStore*>(args->user_arg), std::string(args->key, args->key_size));
    return nullptr;
  } catch (const Error& error) {
    return failed(error.code, error.what());
  } catch (const std::exception& error) {
    return failed(ErrorCode::kInternal, error.what());
  }
}

// Gives the plugin the value, which it copies, and the function that frees ours.
template <class Args>
void give_value(Args* args, const std::string& value) {
  args->value = new char[value.size() + 1];
  std::memcpy(args->value, value.c_str(), value.size() + 1);
  args->value_size = value.size();
  args->value_deleter_callback = [](char* given) { delete[] given; };
}

PJRT_Error* get(PJRT_KeyValueGetCallback_Args* args) {
  return answered(args, [&](KeyValueStore& store, const std::string& key) {
    give_value(args, store.get(key, std::chrono::milliseconds(args->timeout_in_ms)));
  });
}

PJRT_Error* try_get(PJRT_KeyValueTryGetCallback_Args* args) {
  return answered(args, [&](KeyValueStore& store, const std::string& key) {
    const std::optional<std::string> value = store.try_get(key);
    if (!value) throw Error(ErrorCode::kNotFound, "key-value store", "no process has put '" + key + "'");
    give_value(args, *value);
  });
}

PJRT_Error* put(PJRT_KeyValuePutCallback_Args* args) {
  return answered(args, [&](KeyValueStore& store, const std::string& key) {
    store.put(key, std::string(args->value, args->value_size));
  });
}

}  // namespace

void give_callbacks(PJRT_Client_Create_Args& args, KeyValueStore& store) {
  args.kv_get_callback = get;
  args.kv_put_callback = put;
  args.kv_try_get_callback = try_get;
  args.kv_get_user_arg = args.kv_put_user_arg = args.kv_try_get_user_arg = &store;
}

}  // namespace tpjrt::pjrt
