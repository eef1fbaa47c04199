// A PJRT plugin that passes for CUDA's: with its own memory (own_memory.h), pointers into it, and streams. Calls that
// affect order are logged to the file $EMULATED_CUDA_LOG, together with those of the other half,
// tests/engine/compiled_call/emulated_cuda.cpp.
#include "own_memory.h"

static void note(const char* what, intptr_t stream) {
  const char* log = getenv("EMULATED_CUDA_LOG");
  if (!log) return;
  FILE* file = fopen(log, "a");
  if (!file) abort();
  fprintf(file, "%s %lx\n", what, (long)stream);
  fclose(file);
}

static PJRT_Error* platform_name(PJRT_Client_PlatformName_Args* args) {
  args->platform_name = "cuda";
  args->platform_name_size = 4;
  return NULL;
}

static PJRT_Error* view(PJRT_Client_CreateViewOfDeviceBuffer_Args* args) {
  note("view", args->stream);
  args->stream = 0;
  return host->PJRT_Client_CreateViewOfDeviceBuffer(args);
}

// Appends the compile options of programs to the file $EMULATED_CUDA_OPTIONS, if it is set.
static PJRT_Error* compile(PJRT_Client_Compile_Args* args) {
  const char* name = getenv("EMULATED_CUDA_OPTIONS");
  FILE* file = name ? fopen(name, "ab") : NULL;
  if (name && !file) abort();
  if (file) {
    fwrite(args->compile_options, 1, args->compile_options_size, file);
    fclose(file);
  }
  return host->PJRT_Client_Compile(args);
}

static PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* args) {
  note("execute", 0);
  return host->PJRT_LoadedExecutable_Execute(args);
}

static PJRT_Error* destroy(PJRT_Buffer_Destroy_Args* args) {
  note("destroy", 0);
  return host->PJRT_Buffer_Destroy(args);
}

struct get_stream_args {
  size_t struct_size;
  PJRT_Device* device;
  intptr_t stream;
};
static PJRT_Error* get_stream(struct get_stream_args* args) {
  PJRT_Device_LocalHardwareId_Args id = {.struct_size = PJRT_Device_LocalHardwareId_Args_STRUCT_SIZE,
                                         .device = args->device};
  PJRT_Error* error = host->PJRT_Device_LocalHardwareId(&id);
  args->stream = 0x1000 * (1 + id.local_hardware_id);
  return error;
}

struct wait_args {
  size_t struct_size;
  intptr_t stream;
  PJRT_Buffer* buffer;
};
static PJRT_Error* wait_on_stream(struct wait_args* args) {
  note("results on", args->stream);
  PJRT_Buffer_ReadyEvent_Args ready = {.struct_size = PJRT_Buffer_ReadyEvent_Args_STRUCT_SIZE, .buffer = args->buffer};
  PJRT_Error* error = host->PJRT_Buffer_ReadyEvent(&ready);
  if (error) return error;
  PJRT_Event_Await_Args await = {.struct_size = PJRT_Event_Await_Args_STRUCT_SIZE, .event = ready.event};
  error = host->PJRT_Event_Await(&await);
  PJRT_Event_Destroy_Args done = {.struct_size = PJRT_Event_Destroy_Args_STRUCT_SIZE, .event = ready.event};
  host->PJRT_Event_Destroy(&done);
  return error;
}

static struct {
  PJRT_Extension_Base base;
  PJRT_Error* (*get_stream)(struct get_stream_args*);
  PJRT_Error* (*wait)(struct wait_args*);
} streams;

// Handlers for CUDA are registered for the host, where its programs run.
struct register_args {
  size_t struct_size;
  const char* target;
  size_t target_size;
  void* handler;
  const char* platform;
  size_t platform_size;
  int traits;
};
struct handlers {
  PJRT_Extension_Base base;
  void *type, *user_data;
  PJRT_Error* (*register_handler)(struct register_args*);
};
static struct handlers* of_host;
static PJRT_Error* register_handler(struct register_args* args) {
  args->platform = "Host";
  args->platform_size = 4;
  return of_host->register_handler(args);
}

static void take_handlers(PJRT_Api* api) {
  static struct handlers handlers;
  for (PJRT_Extension_Base* one = api->extension_start; one; one = one->next) {
    if (one->type == PJRT_Extension_Type_FFI) of_host = (struct handlers*)one;
  }
  if (!of_host) return;
  handlers = *of_host;
  handlers.base.struct_size = sizeof(handlers);
  handlers.base.next = api->extension_start;
  handlers.register_handler = register_handler;
  api->extension_start = &handlers.base;
}

const PJRT_Api* GetPjrtApi(void) {
  static PJRT_Api* api;
  if (api || !(api = own_memory_table())) return api;
  api->PJRT_Client_PlatformName = platform_name;
  api->PJRT_Client_CreateViewOfDeviceBuffer = view;
  api->PJRT_Client_Compile = compile;
  api->PJRT_LoadedExecutable_Execute = execute;
  api->PJRT_Buffer_Destroy = destroy;
  take_handlers(api);
  if (!getenv("EMULATED_CUDA_NO_STREAMS")) {
    streams.base.struct_size = sizeof(streams);
    streams.base.type = PJRT_Extension_Type_Stream;
    streams.base.next = api->extension_start;
    streams.get_stream = get_stream;
    streams.wait = wait_on_stream;
    api->extension_start = &streams.base;
  }
  return api;
}
