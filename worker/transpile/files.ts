/** File names of a transpiled component; its core modules are `component.core.wasm`, `component.core2.wasm` and so on. */

export const COMPONENT_SCRIPT = 'component.js'
/** Lists all files of a component; written last, so that a folder with it is complete. */
export const COMPONENT_MANIFEST = 'files.json'
