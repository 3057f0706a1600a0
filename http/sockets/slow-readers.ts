/**
 * Connections with unread responses: waiting bytes count in the budget of the process, and readers below the minimum rate are
 * disconnected. One timer checks all connections, because most have nothing waiting.
 */
import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { MIN_BYTES_PER_SECOND, isCountedByWriter } from '#core/streams/index.ts'
import type { BudgetEntry, StreamBudget } from '#core/streams/index.ts'
import { monotonicMs } from '#core/time.ts'

export type SlowReaderTimes = {
  /** The interval between checks. */
  everyMs: number
  /** The time for which a reader need not take anything. */
  graceMs: number
  bytesPerSecond: number
}

const TIMES: SlowReaderTimes = { everyMs: 1000, graceMs: 30_000, bytesPerSecond: MIN_BYTES_PER_SECOND }

export type SlowReaders = {
  /** Watches the response to a request that arrived on the socket. */
  watch(socket: Socket, response: ServerResponse): void
  stop(): void
}

type Watched = { takenBytes: number; sinceMs: number; account: BudgetEntry | undefined }

export function watchSlowReaders(budget: StreamBudget | undefined, times: SlowReaderTimes = TIMES): SlowReaders {
  const watched = new Map<Socket, Watched>()

  function count(socket: Socket, state: Watched, waitingBytes: number): void {
    if (waitingBytes === 0 || isCountedByWriter(socket)) {
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
      // The system takes a large piece as a whole, so the grace period grows with its size.
      const allowedMs = times.graceMs + (writableLength / times.bytesPerSecond) * 1000
      if (nowMs - state.sinceMs > allowedMs) socket.destroy()
    }
  }

  const timer = setInterval(look, times.everyMs)
  timer.unref()
  return {
    watch(socket, response) {
      // The response has ended; bytes that the system has not taken wait from now on.
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
