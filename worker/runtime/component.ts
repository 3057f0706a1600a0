/** Components in the threads of a runner. */
import { Script } from 'node:vm'
import { LoadedComponent } from '#guests/calls/index.ts'
import type { ComponentCore, Instantiate } from '#guests/calls/index.ts'
import type { ModuleDescription } from '#guests/wasm/index.ts'

/** The transferable form: the text of the script and the compiled core modules. */
export type CompiledComponent = {
  kind: 'component'
  description: ModuleDescription
  script: string
  cores: ComponentCore[]
}

let deferrals = 0

/** Counts what scripts defer. Must be called before the first component is loaded; the engine itself does not use these functions. */
export function countDeferrals(): void {
  const global = globalThis as Record<string, unknown>
  for (const name of ['setTimeout', 'setInterval', 'queueMicrotask']) {
    const original = global[name] as (...given: unknown[]) => unknown
    global[name] = (...given: unknown[]) => {
      deferrals++
      return original(...given)
    }
  }
}

/** The script has no access to globals and cannot load code (see `guests/scripts/check-script.ts`). */
export function loadComponent({ description, script, cores }: CompiledComponent): LoadedComponent {
  const compiled = new Script(script, { filename: 'component.js' })
  const evaluate = () => compiled.runInThisContext() as Instantiate
  return new LoadedComponent({ exports: description.exports, cores, evaluate, deferrals: () => deferrals })
}
