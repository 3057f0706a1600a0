/**
 * Connections whose answers wait to be read: what waits counts in the budget of the process, and whoever takes less than the
 * minimum rate is disconnected. One look through all connections again and again, because most have nothing waiting.
 */
import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { MIN_BYTES_PER_SECOND, isCounted } from '../streams/index.ts'
import type { Account, StreamBudget } from '../streams/index.ts'
import { monotonicMs } from '../time.ts'

export type SlowReaderTimes = {
  /** How often connections are looked at. */
  everyMs: number
  /** Nothing need be taken for so long. */
  graceMs: number
  bytesPerSecond: number
}

const TIMES: SlowReaderTimes = { everyMs: 1000, graceMs: 30_000, bytesPerSecond: MIN_BYTES_PER_SECOND }

export type SlowReaders = {
  /** A request came over the socket; this will be its answer. */
  watch(socket: Socket, response: ServerResponse): void
  stop(): void
}

type Watched = { takenBytes: number; sinceMs: number; account: Account | undefined }

export function watchSlowReaders(budget: StreamBudget | undefined, times: SlowReaderTimes = TIMES): SlowReaders {
  const watched = new Map<Socket, Watched>()

  function count(socket: Socket, state: Watched, waitingBytes: number): void {
    if (waitingBytes === 0 || isCounted(socket)) {
      state.account?.close()
      state.account = undefined
      return
    }
    state.account ??= budget?.open({
      get waitingBytes() {
        return socket.writableLength
      },
      cut: () => socket.destroy(),
    })
    state.account?.update()
  }

  function look(): void {
    const nowMs = monotonicMs()
    for (const [socket, state] of watched) {
      const { writableLength } = socket
      const takenBytes = socket.bytesWritten - writableLength
      count(socket, state, writableLength)
      if (writableLength === 0 || takenBytes !== state.takenBytes) {
        state.takenBytes = takenBytes
        state.sinceMs = nowMs
        continue
      }
      // A large piece is taken as a whole, so it has the time that all of it may take.
      const allowedMs = times.graceMs + (writableLength / times.bytesPerSecond) * 1000
      if (nowMs - state.sinceMs > allowedMs) socket.destroy()
    }
  }

  const timer = setInterval(look, times.everyMs)
  timer.unref()
  return {
    watch(socket, response) {
      // Its end was written: what the system did not take of it waits from now on.
      response.once('prefinish', () => {
        const known = watched.get(socket)
        if (known !== undefined && socket.writableLength > 0) count(socket, known, socket.writableLength)
      })
      if (watched.has(socket)) return
      const state: Watched = { takenBytes: 0, sinceMs: monotonicMs(), account: undefined }
      watched.set(socket, state)
      socket.once('close', () => {
        watched.delete(socket)
        state.account?.close()
      })
    },
    stop: () => clearInterval(timer),
  }
}
