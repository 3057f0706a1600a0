/** Components in the threads of a runner. */
import { Script } from 'node:vm'
import { LoadedComponent } from '#core/guests/index.ts'
import type { ComponentCore, Instantiate } from '#core/guests/index.ts'
import type { ModuleDescription } from '#core/wasm/index.ts'

/** The transferable form: the text of the script and the compiled core modules. */
export type CompiledComponent = {
  kind: 'component'
  description: ModuleDescription
  script: string
  cores: ComponentCore[]
}

/** The script has no access to globals and cannot load code (see `worker/transpile/check-script.ts`). */
export function loadComponent({ description, script, cores }: CompiledComponent): LoadedComponent {
  const instantiate = new Script(script, { filename: 'component.js' }).runInThisContext() as Instantiate
  return new LoadedComponent({ exports: description.exports, cores, instantiate })
}
