/** The error of an invalid WebAssembly module: what is wrong, or which limit it exceeds, with both figures. */
import { ServiceError } from '#core/errors/index.ts'

/** Its kind is `malformed`: an upload returns 400 with the message, and a worker reports the same message as the reason. */
export class ModuleRefusal extends ServiceError {
  constructor(message: string) {
    super('malformed', message)
    this.name = 'ModuleRefusal'
  }
}
