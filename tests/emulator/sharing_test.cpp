// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/emulated.h"
#include "tests/emulator/in_process.h"

#include <sys/socket.h>

#include <array>

namespace {

using namespace emulated;

/// Two processes and what travels between them. The one that owns the memory is a child, because
/// the test itself must not use the emulator.
class Channel {
 public:
  Channel() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends_.data()), 0); }

  ~Channel() {
    close(ends_[0]);
    close(ends_[1]);
  }

  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  template <typename Value>
  void send(int end, const Value& value) const {
    EXPECT_EQ(write(ends_.at(static_cast<std::size_t>(end)), &value, sizeof value),
              static_cast<ssize_t>(sizeof value));
  }

  template <typename Value>
  Value receive(int end) const {
    Value value{};
    EXPECT_EQ(read(ends_.at(static_cast<std::size_t>(end)), &value, sizeof value),
              static_cast<ssize_t>(sizeof value));
    return value;
  }

  /// An open file, by the machine's own way of passing one on.
  void send_file(int end, int file) const {
    char byte = 0;
    iovec bytes = {&byte, 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof file)> room{};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = room.data();
    message.msg_controllen = room.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof file);
    std::memcpy(CMSG_DATA(header), &file, sizeof file);
    EXPECT_EQ(sendmsg(ends_.at(static_cast<std::size_t>(end)), &message, 0), 1);
  }

  [[nodiscard]] int receive_file(int end) const {
    char byte = 0;
    iovec bytes = {&byte, 1};
    int file = -1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof file)> room{};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = room.data();
    message.msg_controllen = room.size();
    EXPECT_EQ(recvmsg(ends_.at(static_cast<std::size_t>(end)), &message, 0), 1);
    std::memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
    return file;
  }

 private:
  std::array<int, 2> ends_{};
};

/// Runs `owner(channel)` and `user(channel)` in a process each; what the user writes. The owner's
/// end of the channel is 0, the user's 1.
template <typename Owner, typename User>
std::string between(Owner owner, User user) {
  const Channel channel;
  const pid_t child = fork();
  if (child == 0) {
    owner(channel);
    _exit(0);
  }
  std::string written = in_process({}, [&] { user(channel); });
  waitpid(child, nullptr, 0);
  return written;
}

/// An owner of one block full of 5 that waits for the user and then prints byte 0.
void own_a_block(const Channel& channel) {
  void* at = nullptr;
  cudaIpcMemHandle_t handle{};
  cudaMalloc(&at, 2 * kUnit);
  cudaMemset(at, 5, 2 * kUnit);
  cudaDeviceSynchronize();
  cudaIpcGetMemHandle(&handle, at);
  channel.send(0, handle);
  channel.receive<char>(0);
  channel.send(0, *static_cast<char*>(at));
}

TEST(SharingTest, TwoProcessesSeeTheSameBytes) {
  const std::string written = between(own_a_block, [](const Channel& channel) {
    const auto handle = channel.receive<cudaIpcMemHandle_t>(1);
    void* at = nullptr;
    say("open", cudaIpcOpenMemHandle(&at, handle, cudaIpcMemLazyEnablePeerAccess));
    say("byte", static_cast<char*>(at)[2 * kUnit - 1]);
    say("memset", cudaMemset(at, 9, 1));
    say("wait", cudaDeviceSynchronize());
    channel.send(1, 'x');
    say("there", channel.receive<char>(1));
    say("close", cudaIpcCloseMemHandle(at));
    say("charged", static_cast<long>(spillway_emulator_used(0)));
  });

  EXPECT_EQ(written, "open 0\nbyte 5\nmemset 0\nwait 0\nthere 9\nclose 0\ncharged 0\n");
}

TEST(SharingTest, OpeningTwiceIsOneAddressThatIsClosedTwice) {
  const std::string written = between(own_a_block, [](const Channel& channel) {
    const auto handle = channel.receive<cudaIpcMemHandle_t>(1);
    void* first = nullptr;
    void* second = nullptr;
    cudaIpcOpenMemHandle(&first, handle, cudaIpcMemLazyEnablePeerAccess);
    cudaIpcOpenMemHandle(&second, handle, cudaIpcMemLazyEnablePeerAccess);
    say("same", first == second ? 1 : 0);
    say("close", cudaIpcCloseMemHandle(first));
    say("still", cudaMemset(first, 1, 1));
    say("close", cudaIpcCloseMemHandle(first));
    say("gone", cudaMemset(first, 1, 1));
    say("again", cudaIpcCloseMemHandle(first));
    channel.send(1, 'x');
  });

  EXPECT_EQ(written, "same 1\nclose 0\nstill 0\nclose 0\ngone 1\nagain 1\n");
}

TEST(SharingTest, OpenedMemoryCannotBeFreedNorSharedOn) {
  const std::string written = between(own_a_block, [](const Channel& channel) {
    const auto handle = channel.receive<cudaIpcMemHandle_t>(1);
    void* at = nullptr;
    cudaIpcMemHandle_t on{};
    cudaIpcOpenMemHandle(&at, handle, cudaIpcMemLazyEnablePeerAccess);
    say("free", cudaFree(at));
    say("on", cudaIpcGetMemHandle(&on, at));
    say("flags", cudaIpcOpenMemHandle(&at, handle, 0));
    channel.send(1, 'x');
  });

  EXPECT_EQ(written, "free 1\non 1\nflags 1\n");
}

TEST(SharingTest, AChangedHandleIsRefused) {
  const std::string written = between(own_a_block, [](const Channel& channel) {
    const auto handle = channel.receive<cudaIpcMemHandle_t>(1);
    void* at = nullptr;
    long refused = 0;
    for (int byte = 0; byte < 56; ++byte) {
      cudaIpcMemHandle_t changed = handle;
      changed.reserved[byte] = static_cast<char>(changed.reserved[byte] ^ 1);
      const cudaError_t error = cudaIpcOpenMemHandle(&at, changed, cudaIpcMemLazyEnablePeerAccess);
      // A changed process number may be this process's own, which is refused in other words.
      if (error != cudaSuccess) ++refused;
    }
    say("refused", refused);
    channel.send(1, 'x');
  });

  EXPECT_EQ(written, "refused 56\n");
}

TEST(SharingTest, AHandleOfAProcessThatHasEndedIsRefused) {
  const std::string written = between(own_a_block, [](const Channel& channel) {
    const auto handle = channel.receive<cudaIpcMemHandle_t>(1);
    void* at = nullptr;
    channel.send(1, 'x');
    channel.receive<char>(1);
    for (;;) {  // the owner is the test's child, not ours: ask /proc
      char text[512] = {};
      int process = 0;
      std::memcpy(&process, handle.reserved + 8, sizeof process);
      const std::string path = "/proc/" + std::to_string(process) + "/fd/0";
      if (readlink(path.c_str(), text, sizeof text) < 0) break;
    }
    say("open", cudaIpcOpenMemHandle(&at, handle, cudaIpcMemLazyEnablePeerAccess));
  });

  EXPECT_EQ(written, "open 400\n");
}

TEST(SharingTest, AProcessCannotOpenItsOwnHandle) {
  EXPECT_EQ(in_process({},
                       [] {
                         void* at = nullptr;
                         cudaIpcMemHandle_t handle{};
                         cudaMalloc(&at, kUnit);
                         say("get", cudaIpcGetMemHandle(&handle, at));
                         say("open", cudaIpcOpenMemHandle(&at, handle, 1));
                       }),
            "get 0\nopen 201\n");
}

TEST(SharingTest, OnlyTheBeginOfCudaMallocMemoryHasAHandle) {
  EXPECT_EQ(in_process({},
                       [] {
                         void* at = nullptr;
                         void* ordered = nullptr;
                         cudaIpcMemHandle_t handle{};
                         cudaMalloc(&at, kUnit);
                         cudaMallocAsync(&ordered, kUnit, nullptr);
                         say("interior",
                             cudaIpcGetMemHandle(&handle, static_cast<char*>(at) + 512));
                         say("pool", cudaIpcGetMemHandle(&handle, ordered));
                         say("host", cudaIpcGetMemHandle(&handle, &handle));
                         say("null", cudaIpcGetMemHandle(nullptr, at));
                       }),
            "interior 1\npool 1\nhost 1\nnull 1\n");
}

TEST(SharingTest, ASmallBlockIsFoundInsideItsPage) {
  const auto owner = [](const Channel& channel) {
    void* before = nullptr;
    void* at = nullptr;
    cudaIpcMemHandle_t handle{};
    cudaMalloc(&before, 512);
    cudaMalloc(&at, 512);
    cudaMemset(at, 6, 512);
    cudaIpcGetMemHandle(&handle, at);
    channel.send(0, handle);
    channel.receive<char>(0);
  };

  const std::string written = between(owner, [](const Channel& channel) {
    const auto handle = channel.receive<cudaIpcMemHandle_t>(1);
    void* at = nullptr;
    cudaIpcOpenMemHandle(&at, handle, cudaIpcMemLazyEnablePeerAccess);
    say("byte", static_cast<char*>(at)[511]);
    say("close", cudaIpcCloseMemHandle(at));
    channel.send(1, 'x');
  });

  EXPECT_EQ(written, "byte 6\nclose 0\n");
}

TEST(SharingTest, AnEventForOtherProcessesHasNoTiming) {
  EXPECT_EQ(in_process({},
                       [] {
                         cudaEvent_t event = nullptr;
                         cudaIpcEventHandle_t handle{};
                         say("timed", cudaEventCreateWithFlags(&event, cudaEventInterprocess));
                         cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
                         say("private", cudaIpcGetEventHandle(&handle, event));
                         cudaEventCreateWithFlags(&event,
                                                  cudaEventDisableTiming | cudaEventInterprocess);
                         say("shared", cudaIpcGetEventHandle(&handle, event));
                         say("own", cudaIpcOpenEventHandle(&event, handle));
                       }),
            "timed 1\nprivate 400\nshared 0\nown 201\n");
}

TEST(SharingTest, ARecordedEventMeansThatItsStreamHasRunForTheOtherProcess) {
  const auto owner = [](const Channel& channel) {
    setenv("SPILLWAY_EMULATE_SCHEDULE", "late", 1);
    void* at = nullptr;
    void* source = nullptr;
    cudaEvent_t event = nullptr;
    cudaIpcMemHandle_t memory{};
    cudaIpcEventHandle_t handle{};
    cudaMalloc(&at, kUnit);
    cudaMallocHost(&source, kUnit);
    std::memset(source, 8, kUnit);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess);
    cudaStream_t stream = emulated::make_stream();
    emulated::copy(at, source, kUnit, stream);
    cudaEventRecord(event, stream);
    cudaIpcGetMemHandle(&memory, at);
    cudaIpcGetEventHandle(&handle, event);
    channel.send(0, memory);
    channel.send(0, handle);
    channel.receive<char>(0);
  };

  const std::string written = between(owner, [](const Channel& channel) {
    const auto memory = channel.receive<cudaIpcMemHandle_t>(1);
    const auto handle = channel.receive<cudaIpcEventHandle_t>(1);
    void* at = nullptr;
    cudaEvent_t event = nullptr;
    cudaIpcOpenMemHandle(&at, memory, cudaIpcMemLazyEnablePeerAccess);
    say("open", cudaIpcOpenEventHandle(&event, handle));
    say("wait", cudaStreamWaitEvent(nullptr, event, 0));
    say("query", cudaEventQuery(event));
    say("byte", static_cast<char*>(at)[kUnit - 1]);
    say("destroy", cudaEventDestroy(event));
    channel.send(1, 'x');
  });

  EXPECT_EQ(written, "open 0\nwait 0\nquery 0\nbyte 8\ndestroy 0\n");
}

/// A mapped unit of memory that may be shared, full of 4, and its handle.
CUmemGenericAllocationHandle shareable(CUdeviceptr* at, int types) {
  cudaSetDevice(0);
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp properties = memory_of(0);
  properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(types);
  const CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CU(MemCreate, 10020)(&handle, kUnit, &properties, 0);
  CU(MemAddressReserve, 10020)(at, kUnit, 0, 0, 0);
  CU(MemMap, 10020)(*at, kUnit, 0, handle, 0);
  CU(MemSetAccess, 10020)(*at, kUnit, &access, 1);
  std::memset(reinterpret_cast<void*>(*at), 4, kUnit);
  return handle;
}

CUresult export_to(int* file, CUmemGenericAllocationHandle handle) {
  return CU(MemExportToShareableHandle, 10020)(
      file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

CUresult import_from(int file, CUmemGenericAllocationHandle* handle) {
  return CU(MemImportFromShareableHandle, 10020)(
      handle,
      reinterpret_cast<void*>(static_cast<std::intptr_t>(file)),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

TEST(SharingTest, MappedMemoryTravelsAsAnOpenFileAndOutlivesItsOwner) {
  const auto owner = [](const Channel& channel) {
    CUdeviceptr at = 0;
    int file = -1;
    const auto handle = shareable(&at, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    export_to(&file, handle);
    channel.send_file(0, file);
  };

  const std::string written = between(owner, [](const Channel& channel) {
    const int file = channel.receive_file(1);
    cudaSetDevice(0);
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr at = 0;
    const CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    say("import", import_from(file, &handle));
    close(file);
    CU(MemAddressReserve, 10020)(&at, kUnit, 0, 0, 0);
    say("map", CU(MemMap, 10020)(at, kUnit, 0, handle, 0));
    say("access", CU(MemSetAccess, 10020)(at, kUnit, &access, 1));
    say("byte", reinterpret_cast<char*>(at)[kUnit - 1]);
    say("unmap", CU(MemUnmap, 10020)(at, kUnit));
    say("release", CU(MemRelease, 10020)(handle));
    say("charged", static_cast<long>(spillway_emulator_used(0)));
  });

  EXPECT_EQ(written, "import 0\nmap 0\naccess 0\nbyte 4\nunmap 0\nrelease 0\ncharged 0\n");
}

TEST(SharingTest, SharingMappedMemoryMustBeRequestedAtItsCreation) {
  EXPECT_EQ(in_process({},
                       [] {
                         CUdeviceptr at = 0;
                         int file = -1;
                         const auto handle = shareable(&at, CU_MEM_HANDLE_TYPE_NONE);
                         say("export", export_to(&file, handle));
                       }),
            "export 1\n");
}

TEST(SharingTest, AFileThatIsNoSharedMemoryIsRefused) {
  EXPECT_EQ(in_process({},
                       [] {
                         CUdeviceptr at = 0;
                         int file = -1;
                         CUmemGenericAllocationHandle other = 0;
                         const auto handle =
                             shareable(&at, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
                         export_to(&file, handle);
                         say("output", import_from(STDOUT_FILENO, &other));
                         say("none", import_from(-1, &other));
                         lseek(file, kUnit, SEEK_CUR);
                         say("moved", import_from(file, &other));
                         lseek(file, -static_cast<off_t>(kUnit), SEEK_CUR);
                         say("itself", import_from(file, &other));
                       }),
            "output 1\nnone 1\nmoved 1\nitself 0\n");
}

}  // namespace
