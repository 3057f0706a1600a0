/**
 * A thread as runner of jobs. It is for parsers that bound what they keep of their input: a thread that allocates one large piece beyond
 * the limit of its heap does not end alone, but aborts the process.
 */
import { Worker } from 'node:worker_threads'
import type { StartRunner } from './job-queue.ts'

/** `script` answers each message with one message. `maxHeapMib` is the heap of the thread. */
export function jobThread<Job extends object, Result>(script: URL, maxHeapMib: number): StartRunner<Job, Result> {
  return (report) => {
    const thread = new Worker(script, {
      env: {},
      execArgv: [],
      resourceLimits: { maxOldGenerationSizeMb: maxHeapMib },
    })
    let isEnded = false
    thread.on('message', (result: Result) => {
      if (!isEnded) report.result(result)
    })
    thread.on('error', () => {
      if (!isEnded) report.fail()
    })
    return {
      post: (job, transfer) => thread.postMessage(job, transfer),
      hold: (isHeld) => (isHeld ? thread.ref() : thread.unref()),
      end() {
        isEnded = true
        void thread.terminate()
      },
    }
  }
}
