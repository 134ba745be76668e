"""Target-independent rewrites and analyses, one file each; `pipeline` lists the passes."""
