/** Facts about the machine of the worker. */
import { availableParallelism, cpus, freemem, totalmem } from 'node:os'

export type MachineFacts = { os: string; arch: string; cpuCores: number; memoryBytes: bigint }

/** The memory limit of a container overrides the memory of the machine, and so does the memory that runs have, if it is limited. */
export function machineFacts(runMemoryBytes = Infinity): MachineFacts {
  const constrained = process.constrainedMemory()
  const total = totalmem()
  const memoryBytes = constrained > 0 && constrained < total ? constrained : total
  return {
    os: process.platform,
    arch: process.arch,
    cpuCores: availableParallelism(),
    memoryBytes: BigInt(Math.min(memoryBytes, runMemoryBytes)),
  }
}

export function freeMemoryBytes(): bigint {
  return BigInt(Math.min(freemem(), process.availableMemory()))
}

/** The share of all cores that was busy since the last call, 0 to 1. */
export function createLoadMeter(): () => number {
  let before = cpuTimes()
  return () => {
    const now = cpuTimes()
    const total = now.total - before.total
    const idle = now.idle - before.idle
    before = now
    return total <= 0 ? 0 : Math.min(1, Math.max(0, 1 - idle / total))
  }
}

function cpuTimes(): { idle: number; total: number } {
  let idle = 0
  let total = 0
  for (const { times } of cpus()) {
    idle += times.idle
    total += times.user + times.nice + times.sys + times.idle + times.irq
  }
  return { idle, total }
}
