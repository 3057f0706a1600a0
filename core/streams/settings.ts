/** Settings of the streams of a process. */
import { bytes, integer } from '../config/index.ts'
import type { ConfigOf } from '../config/index.ts'

const COUNT = { min: 1, max: 1_000_000 }

export const STREAM_SETTINGS = {
  streamBytes: bytes(
    'SKEIN_STREAM_BYTES',
    '256MiB',
    'Limit of bytes that wait for all readers of one process (streams, sockets, subscribers and responses); above it, the slowest readers are disconnected',
  ),
  streamsPerClient: integer(
    'SKEIN_STREAMS_PER_CLIENT',
    16,
    COUNT,
    'Event streams and WebSockets that one client may have open at one process',
  ),
  streamsPerUser: integer(
    'SKEIN_STREAMS_PER_USER',
    64,
    COUNT,
    'Event streams, followed outputs and WebSockets that one user may have open at one process',
  ),
  streamsPerDomain: integer(
    'SKEIN_STREAMS_PER_DOMAIN',
    1024,
    COUNT,
    'Event streams, followed outputs and WebSockets of one domain that may be open at one process',
  ),
} as const

export type StreamConfig = ConfigOf<typeof STREAM_SETTINGS>
