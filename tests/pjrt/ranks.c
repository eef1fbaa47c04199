// A PJRT plugin that passes for a GPU's runtime in several processes, made from the plugin at $TORCH_PJRT_TEST_PLUGIN.
// Its client has one device in each process (options node_id and num_nodes), and a program's replicas communicate
// through the key-value store.
//
// Each process computes all replicas: it puts its arguments into the store, gets the others', runs the program on as
// many devices of its own, and returns its replica's results. So programs and collectives are XLA's, and only NCCL is
// missing. The creation of a client checks the required options and returns an error that names a wrong one.
#include <stdarg.h>
#include <stdint.h>

#include "own_memory.h"

#define MOST_NODES 16
#define MOST_ARGUMENTS 256
#define ARGS(Function, name) Function##_Args name = {.struct_size = Function##_Args_STRUCT_SIZE}

static int64_t node_id = -1, num_nodes = 1;
static PJRT_Client_Create_Args store;  // its callbacks
static PJRT_Device* devices[MOST_NODES];

// Our own errors; the host's begin with a pointer.
#define OURS 0x7a6e6b73
struct ours {
  uintptr_t mark;
  PJRT_Error_Code code;
  size_t size;
  char text[512];
};
static PJRT_Error* made(PJRT_Error_Code code, const char* text, size_t size) {
  struct ours* error = calloc(1, sizeof *error);
  error->mark = OURS;
  error->code = code;
  error->size = size < sizeof error->text ? size : sizeof error->text;
  memcpy(error->text, text, error->size);
  return (PJRT_Error*)error;
}
static PJRT_Error* refused(const char* format, ...) {
  char text[512];
  va_list values;
  va_start(values, format);
  const int size = vsnprintf(text, sizeof text, format, values);
  va_end(values);
  return made(PJRT_Error_Code_INVALID_ARGUMENT, text, (size_t)size);
}
static bool is_ours(const PJRT_Error* error) { return ((const struct ours*)error)->mark == OURS; }
static void error_destroy(PJRT_Error_Destroy_Args* args) {
  if (args->error && is_ours(args->error)) {
    free(args->error);
  } else {
    host->PJRT_Error_Destroy(args);
  }
}
static void error_message(PJRT_Error_Message_Args* args) {
  if (!is_ours(args->error)) return host->PJRT_Error_Message(args);
  args->message = ((const struct ours*)args->error)->text;
  args->message_size = ((const struct ours*)args->error)->size;
}
static PJRT_Error* error_code(PJRT_Error_GetCode_Args* args) {
  if (!is_ours(args->error)) return host->PJRT_Error_GetCode(args);
  args->code = ((const struct ours*)args->error)->code;
  return NULL;
}

static PJRT_CallbackError callback_error = made;

static PJRT_Error* put(const char* key, const void* value, size_t size) {
  ARGS(PJRT_KeyValuePutCallback, args);
  args.key = key;
  args.key_size = strlen(key);
  args.value = value;
  args.value_size = size;
  args.callback_error = &callback_error;
  args.user_arg = store.kv_put_user_arg;
  return store.kv_put_callback(&args);
}
// Gets a value, which the caller frees.
static PJRT_Error* get(const char* key, int timeout_in_ms, char** value, size_t* size) {
  ARGS(PJRT_KeyValueGetCallback, args);
  args.key = key;
  args.key_size = strlen(key);
  args.timeout_in_ms = timeout_in_ms;
  args.callback_error = &callback_error;
  args.user_arg = store.kv_get_user_arg;
  PJRT_Error* error = store.kv_get_callback(&args);
  if (error) return error;
  *value = malloc(args.value_size + 1);
  *size = args.value_size;
  memcpy(*value, args.value, args.value_size);
  args.value_deleter_callback(args.value);
  return NULL;
}
static PJRT_Error* try_get(const char* key) {
  ARGS(PJRT_KeyValueTryGetCallback, args);
  args.key = key;
  args.key_size = strlen(key);
  args.callback_error = &callback_error;
  args.user_arg = store.kv_try_get_user_arg;
  PJRT_Error* error = store.kv_try_get_callback(&args);
  if (!error) args.value_deleter_callback(args.value);
  return error;
}

// Checks that the error has this code and names the key.
static PJRT_Error* missing(PJRT_Error* error, PJRT_Error_Code code, const char* key) {
  if (!error) return refused("a key that nobody put has a value");
  const struct ours* reported = (const struct ours*)error;
  if (reported->code != code || !strstr(reported->text, key))
    return refused("code %d: %s", reported->code, reported->text);
  free(error);
  return NULL;
}

// Returns how long to wait for the others: $name, which the program may change, or a minute.
static int timeout_of(const char* name) {
  const char* timeout = getenv(name);
  return timeout && *timeout ? atoi(timeout) : 60000;
}

// Exchanges data like real runtimes when they find each other, and tests the store's other functions.
static PJRT_Error* meet(void) {
  char key[64];
  PJRT_Error* error = missing(try_get("absent"), PJRT_Error_Code_NOT_FOUND, "absent");
  char* value;
  size_t size;
  if (!error) error = missing(get("late", 20, &value, &size), PJRT_Error_Code_DEADLINE_EXCEEDED, "late");
  snprintf(key, sizeof key, "device:%d", (int)node_id);
  char reported[8] = {'i', 's', 0, (char)node_id};  // arbitrary bytes
  if (!error) error = put(key, reported, sizeof reported);
  if (!error) error = try_get(key);
  for (int i = 0; !error && i < num_nodes; ++i) {
    snprintf(key, sizeof key, "device:%d", i);
    error = get(key, timeout_of("TORCH_PJRT_TEST_TIMEOUT"), &value, &size);
    if (error) break;
    if (size != sizeof reported || value[3] != i)
      error = refused("process %d is reported as %d in %zu bytes", i, value[3], size);
    free(value);
  }
  return error;
}

static PJRT_Error* create(PJRT_Client_Create_Args* args) {
  int64_t visible = -1;
  for (size_t i = 0; i < args->num_options; ++i) {
    const PJRT_NamedValue* option = &args->create_options[i];
    const bool is_number = option->type == PJRT_NamedValue_kInt64;
    if (!strncmp(option->name, "node_id", option->name_size) && is_number) node_id = option->int64_value;
    if (!strncmp(option->name, "num_nodes", option->name_size) && is_number) num_nodes = option->int64_value;
    if (!strncmp(option->name, "visible_devices", option->name_size) && option->type == PJRT_NamedValue_kInt64List &&
        option->value_size == 1) {
      visible = option->int64_array_value[0];
    }
  }
  if (node_id >= 0) {
    if (num_nodes < 2 || num_nodes > MOST_NODES || node_id >= num_nodes)
      return refused("node %d of %d", (int)node_id, (int)num_nodes);
    if (visible != atoi(getenv("RANK"))) return refused("visible_devices is %d", (int)visible);
    if (!args->kv_get_callback || !args->kv_put_callback || !args->kv_try_get_callback)
      return refused("no key-value store");
    store = *args;
    PJRT_Error* error = meet();
    if (error) node_id = -1;  // the next client runs alone
    if (error) return error;
  }
  char threads[16];
  snprintf(threads, sizeof threads, "%d", (int)(2 * num_nodes));
  setenv("NPROC", threads, 1);  // replicas wait for each other
  PJRT_NamedValue count = {.struct_size = PJRT_NamedValue_STRUCT_SIZE,
                           .name = "cpu_device_count",
                           .name_size = 16,
                           .type = PJRT_NamedValue_kInt64,
                           .int64_value = num_nodes,
                           .value_size = 1};
  ARGS(PJRT_Client_Create, inner);
  inner.create_options = &count;
  inner.num_options = 1;
  PJRT_Error* error = host->PJRT_Client_Create(&inner);
  args->client = inner.client;
  return error;
}

static PJRT_Error* platform_name(PJRT_Client_PlatformName_Args* args) {
  args->platform_name = "cuda";
  args->platform_name_size = 4;
  return NULL;
}

static int64_t number_of(PJRT_DeviceDescription* description) {
  ARGS(PJRT_DeviceDescription_Id, args);
  args.device_description = description;
  host->PJRT_DeviceDescription_Id(&args);
  return args.id;
}
static int64_t number_of_device(PJRT_Device* device) {
  ARGS(PJRT_Device_GetDescription, args);
  args.device = device;
  host->PJRT_Device_GetDescription(&args);
  return number_of(args.device_description);
}

static PJRT_Error* process_index(PJRT_DeviceDescription_ProcessIndex_Args* args) {
  args->process_index = (int)number_of(args->device_description);
  return NULL;
}

static PJRT_Error* addressable(PJRT_Client_AddressableDevices_Args* args) {
  PJRT_Error* error = host->PJRT_Client_AddressableDevices(args);
  if (error || node_id < 0) return error;
  for (size_t i = 0; i < args->num_addressable_devices; ++i) {
    devices[number_of_device(args->addressable_devices[i])] = args->addressable_devices[i];
  }
  args->addressable_devices = &devices[node_id];
  args->num_addressable_devices = 1;
  return NULL;
}

static PJRT_Error* await(PJRT_Event* event) {
  ARGS(PJRT_Event_Await, waited);
  waited.event = event;
  PJRT_Error* error = host->PJRT_Event_Await(&waited);
  ARGS(PJRT_Event_Destroy, done);
  done.event = event;
  host->PJRT_Event_Destroy(&done);
  return error;
}

// Makes a buffer with these bytes, otherwise like another one, on this device.
static PJRT_Error* copied(PJRT_Client* client, PJRT_Buffer* like, const char* bytes, PJRT_Device* device,
                          PJRT_Buffer** made_of) {
  ARGS(PJRT_Buffer_ElementType, element);
  element.buffer = like;
  host->PJRT_Buffer_ElementType(&element);
  ARGS(PJRT_Buffer_Dimensions, dims);
  dims.buffer = like;
  host->PJRT_Buffer_Dimensions(&dims);
  ARGS(PJRT_Client_BufferFromHostBuffer, args);
  args.client = client;
  args.data = bytes;
  args.type = element.type;
  args.dims = dims.dims;
  args.num_dims = dims.num_dims;
  args.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  args.device = device;
  PJRT_Error* error = host->PJRT_Client_BufferFromHostBuffer(&args);
  if (error) return error;
  *made_of = args.buffer;
  return await(args.done_with_host_buffer);
}

static PJRT_Error* read(PJRT_Buffer* buffer, char** bytes, size_t* size) {
  ARGS(PJRT_Buffer_ToHostBuffer, args);
  args.src = buffer;
  PJRT_Error* error = host->PJRT_Buffer_ToHostBuffer(&args);
  if (error) return error;
  *size = args.dst_size;
  *bytes = malloc(*size + 1);
  args.dst = *bytes;
  error = host->PJRT_Buffer_ToHostBuffer(&args);
  return error ? error : await(args.event);
}

static void destroy(PJRT_Buffer* buffer) {
  ARGS(PJRT_Buffer_Destroy, args);
  args.buffer = buffer;
  host->PJRT_Buffer_Destroy(&args);
}

static PJRT_Client* the_client;

// Returns the counter of these devices' common runs; the caller increments it.
static int* runs_of(const char* group) {
  static struct {
    char group[4 * MOST_NODES];
    int runs;
  } known[64];
  int i = 0;
  while (known[i].group[0] && strcmp(known[i].group, group)) ++i;
  strcpy(known[i].group, group);
  return &known[i].runs;
}

static PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* args) {
  ARGS(PJRT_LoadedExecutable_AddressableDevices, on);
  on.executable = args->executable;
  PJRT_Error* error = host->PJRT_LoadedExecutable_AddressableDevices(&on);
  const size_t count = on.num_addressable_devices, arguments = args->num_args;
  if (error || count == 1) return error ? error : host->PJRT_LoadedExecutable_Execute(args);
  if (args->num_devices != 1) return refused("arguments of %zu devices, and one is here", args->num_devices);

  ARGS(PJRT_LoadedExecutable_GetExecutable, loaded);
  loaded.loaded_executable = args->executable;
  host->PJRT_LoadedExecutable_GetExecutable(&loaded);
  ARGS(PJRT_Executable_NumOutputs, outputs);
  outputs.executable = loaded.executable;
  host->PJRT_Executable_NumOutputs(&outputs);
  ARGS(PJRT_Executable_Destroy, asked);
  asked.executable = loaded.executable;
  host->PJRT_Executable_Destroy(&asked);

  char group[4 * MOST_NODES] = "", key[160];
  size_t own = count;
  for (size_t r = 0; r < count; ++r) {
    const int64_t number = number_of_device(on.addressable_devices[r]);
    snprintf(group + strlen(group), 4, "%d.", (int)number);
    if (number == node_id) own = r;
  }
  if (own == count) return refused("a program of processes %s is not process %d's", group, (int)node_id);
  int* const runs = runs_of(group);  // incremented once all have arrived
  const int run = *runs;
  static PJRT_Buffer* given[MOST_NODES][MOST_ARGUMENTS];
  for (size_t i = 0; i < arguments; ++i) {
    char* bytes;
    size_t size;
    snprintf(key, sizeof key, "run %s %d of %zu arguments, %zu by %d", group, run, arguments, i, (int)node_id);
    if ((error = read(args->argument_lists[0][i], &bytes, &size)) || (error = put(key, bytes, size))) return error;
    free(bytes);
  }
  for (size_t r = 0; r < count; ++r) {
    for (size_t i = 0; i < arguments; ++i) {
      given[r][i] = args->argument_lists[0][i];
      if (r == own) continue;
      char* bytes;
      size_t size;
      snprintf(key, sizeof key, "run %s %d of %zu arguments, %zu by %d", group, run, arguments, i,
               (int)number_of_device(on.addressable_devices[r]));
      if ((error = get(key, timeout_of("TORCH_PJRT_TEST_RUN_TIMEOUT"), &bytes, &size))) return error;
      if ((error = copied(the_client, args->argument_lists[0][i], bytes, on.addressable_devices[r], &given[r][i])))
        return error;
      free(bytes);
    }
  }
  ++*runs;
  static PJRT_Buffer* results[MOST_NODES][MOST_ARGUMENTS];
  PJRT_Buffer* const* argument_lists[MOST_NODES];
  PJRT_Buffer** output_lists[MOST_NODES];
  PJRT_Event* events[MOST_NODES] = {NULL};
  for (size_t r = 0; r < count; ++r) {
    argument_lists[r] = given[r];
    output_lists[r] = r == own ? args->output_lists[0] : results[r];
  }
  PJRT_LoadedExecutable_Execute_Args all = *args;
  PJRT_ExecuteOptions options = *args->options;
  options.launch_id = run + 1;
  all.options = &options;
  all.argument_lists = argument_lists;
  all.output_lists = output_lists;
  all.num_devices = count;
  all.device_complete_events = events;
  if ((error = host->PJRT_LoadedExecutable_Execute(&all))) return error;
  for (size_t r = 0; r < count; ++r) {
    if (r == own && args->device_complete_events) {
      args->device_complete_events[0] = events[r];
    } else {
      error = await(events[r]);
    }
    if (r == own) continue;
    for (size_t i = 0; i < arguments; ++i) destroy(given[r][i]);
    for (size_t i = 0; i < outputs.num_outputs; ++i) destroy(results[r][i]);
  }
  return error;
}

static PJRT_Error* create_and_keep(PJRT_Client_Create_Args* args) {
  PJRT_Error* error = create(args);
  the_client = args->client;
  return error;
}

const PJRT_Api* GetPjrtApi(void) {
  static PJRT_Api* api;
  if (api || !(api = own_memory_table())) return api;
  api->PJRT_Error_Destroy = error_destroy;
  api->PJRT_Error_Message = error_message;
  api->PJRT_Error_GetCode = error_code;
  api->PJRT_Client_Create = create_and_keep;
  api->PJRT_Client_PlatformName = platform_name;
  api->PJRT_Client_AddressableDevices = addressable;
  api->PJRT_DeviceDescription_ProcessIndex = process_index;
  api->PJRT_LoadedExecutable_Execute = execute;
  return api;
}
