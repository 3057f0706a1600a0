/** Standard input and output of one call, with the options that both versions of WASI take, and the outcome with the output. */
import { bytesOf } from '#core/bytes/index.ts'
import type { WasiOptions } from '../wasi/index.ts'
import { BoundedOutput } from './bounded-output.ts'
import type { Call } from './call.ts'
import type { GuestHost } from './guest-host.ts'
import { explainExit } from './outcome.ts'
import type { CallOutcome, GuestMemory } from './outcome.ts'

export class CallStreams {
  readonly wasi: WasiOptions
  readonly #stdout: BoundedOutput
  readonly #stderr: BoundedOutput

  constructor(call: Call, guestHost: GuestHost) {
    this.#stdout = new BoundedOutput(call.maxOutputBytes, (data) => guestHost.wrote('stdout', data))
    this.#stderr = new BoundedOutput(call.maxOutputBytes, (data) => guestHost.wrote('stderr', data))
    this.wasi = {
      args: [call.programName, ...call.args],
      env: call.env,
      stdin: bytesOf(call.stdin),
      stdout: this.#stdout,
      stderr: this.#stderr,
      clock: guestHost.clock,
      beforeWait: (waitMs) => guestHost.beforeWait(waitMs),
    }
  }

  /** The end of the guest's error output. */
  lastLines(): string {
    return this.#stderr.lastLines()
  }

  withOutput(outcome: CallOutcome): CallOutcome {
    return { ...outcome, ...this.#output() }
  }

  /** The outcome of a guest that ended with an exit code. */
  exited(functionName: string, exitCode: number, memories: GuestMemory[]): CallOutcome {
    const output = this.#output()
    const results = { exit_code: exitCode, stdout: output.stdout, stderr: output.stderr }
    return { ...output, ...explainExit(functionName, results, memories, this.lastLines()) }
  }

  #output() {
    return {
      stdout: this.#stdout.content(),
      stderr: this.#stderr.content(),
      isOutputTruncated: this.#stdout.isTruncated || this.#stderr.isTruncated,
    }
  }
}
