/** The library needs the metadata of its decorators before it is evaluated; whoever imports this file gets that order. */
import 'reflect-metadata'

export * from '@peculiar/x509'
