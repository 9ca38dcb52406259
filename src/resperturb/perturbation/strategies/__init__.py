"""The strategies that come with the package, one file each; every file here is imported by the registry."""
