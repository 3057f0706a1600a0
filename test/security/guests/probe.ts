/**
 * JavaScript in an isolated process that tries every door in its main thread and in another one, and says on its output
 * which opened. It runs inside, as plain JavaScript.
 */
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads'
import { confirmIsolation } from '#worker/isolation/confirm.ts'
import { tryDoors } from './doors.ts'
import type { Opened, Targets } from './doors.ts'

async function main(): Promise<void> {
  const parts: Buffer[] = []
  for await (const part of process.stdin) parts.push(part as Buffer)
  const targets = JSON.parse(Buffer.concat(parts).toString()) as Targets
  if (targets.isControl !== true) confirmIsolation()
  const opened = await tryDoors(targets)
  const worker = new Worker(new URL(import.meta.url), { workerData: targets })
  worker.once('message', (more: Opened[]) => {
    process.stdout.write(JSON.stringify([...opened, ...more]), () => process.exit(0))
  })
}

if (isMainThread) await main()
else parentPort?.postMessage(await tryDoors(workerData as Targets))
