/** Transpiles one component in a thread that ends afterwards. */
import { given } from './transpiler-files.ts'
// oxlint-disable-next-line import/first -- the order is what makes it work
import { sentenceOf, transpileComponent } from '#guests/transpiler/index.ts'

void given.promise
  .then(({ component }) => transpileComponent(new Uint8Array(component)))
  .then(
    (transpiled) => postMessage({ transpiled }),
    (error: unknown) => postMessage({ failure: `the component cannot be transpiled: ${sentenceOf(error)}` }),
  )
