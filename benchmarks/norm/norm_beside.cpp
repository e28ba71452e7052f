// One sender or receiver of NORM (RFC 5740), at the library's defaults, for benchmarks/multicast.
//
//   norm_beside send    GROUP PORT INTERFACE NODE COUNT BYTES EVERY_MS BITS_PER_S
//   norm_beside receive GROUP PORT INTERFACE NODE COUNT
//
// The sender sends COUNT objects of random BYTES, one EVERY_MS, and goes on to answer until it is
// killed. A receiver prints a line when it listens, and ends once it has all objects.

#include <normApi.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

static const unsigned BUFFER = 16 * 1024 * 1024;
static const UINT16 SEGMENT = 1360;  // datagrams of at most 1400 bytes, as the group's are
static const UINT16 DATA = 64, PARITY = 32;  // of a block: what NORM's own examples have

int main(int count_of_words, char** words) {
  if (count_of_words < 7) return 2;
  const bool sends = !std::strcmp(words[1], "send");
  if (sends && count_of_words < 10) return 2;
  const int count = std::atoi(words[6]);
  NormInstanceHandle instance = NormCreateInstance();
  NormSessionHandle session =
      NormCreateSession(instance, words[2], std::atoi(words[3]), std::atoi(words[5]));
  NormSetMulticastInterface(session, words[4]);
  NormSetTTL(session, 1);
  NormSetRxSocketBuffer(session, BUFFER / 2);
  if (!sends) {
    NormStartReceiver(session, BUFFER);
    NormSetRxCacheLimit(session, 1024);
    std::puts("listens");
    std::fflush(stdout);
    NormEvent event;
    for (int whole = 0; whole < count && NormGetNextEvent(instance, &event);)
      if (event.type == NORM_RX_OBJECT_COMPLETED && NormObjectGetSize(event.object) > 0) ++whole;
    // What the others still ask for, they hear from the sender alone.
    std::_Exit(0);
  }
  const int bytes = std::atoi(words[7]);
  NormSetTxRate(session, std::atof(words[9]));
  NormSetTxCacheBounds(session, BUFFER, count, 2 * count);
  NormSetTxSocketBuffer(session, BUFFER / 2);
  NormStartSender(session, NormGetRandomSessionId(), BUFFER, SEGMENT, DATA, PARITY);
  std::mt19937 noise(1);
  std::vector<std::string> objects;
  for (int n = 0; n < count; ++n) {
    std::string object(bytes, '\0');
    for (char& one : object) one = static_cast<char>(noise());
    objects.push_back(object);
  }
  for (const std::string& object : objects) {
    if (NormDataEnqueue(session, object.data(), object.size()) == NORM_OBJECT_INVALID) return 1;
    usleep(std::atoi(words[8]) * 1000);
  }
  NormEvent event;
  while (NormGetNextEvent(instance, &event)) continue;
  return 0;
}
