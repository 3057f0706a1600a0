/**
 * A process as runner of jobs: whatever the input makes a parser allocate ends this process alone. It has no environment, no arguments and
 * no output; jobs and results are copied as JSON, so it is for texts.
 */
import { fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { StartRunner } from './job-queue.ts'

/** `script` answers each message with one message. `maxHeapMib` is the heap of the process. */
export function jobProcess<Job extends object, Result>(script: URL, maxHeapMib: number): StartRunner<Job, Result> {
  return (report) => {
    const child = fork(fileURLToPath(script), {
      env: {},
      execArgv: [`--max-old-space-size=${maxHeapMib}`, '--disable-sigusr1', '--no-warnings'],
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    })
    let isEnded = false
    const fail = () => {
      if (isEnded) return
      isEnded = true
      report.fail()
    }
    child.on('message', (result) => {
      if (!isEnded) report.result(result as Result)
    })
    child.on('exit', fail)
    child.on('error', fail)
    return {
      post: (job) => {
        child.send(job, (error) => {
          if (error !== null) fail()
        })
      },
      hold(isHeld) {
        const handles = [child, child.channel]
        for (const handle of handles) {
          if (isHeld) handle?.ref()
          else handle?.unref()
        }
      },
      end() {
        isEnded = true
        child.kill('SIGKILL')
      },
    }
  }
}
