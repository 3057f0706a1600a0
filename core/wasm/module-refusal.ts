/** The refusal of a WebAssembly module: what is wrong with it, or which bound it breaks, with both figures. */
import { ServiceError } from '../errors/index.ts'

/** `malformed`, so an upload answers 400 with the sentence; who runs modules reports the same sentence as the reason. */
export class ModuleRefusal extends ServiceError {
  constructor(message: string) {
    super('malformed', message)
    this.name = 'ModuleRefusal'
  }
}
